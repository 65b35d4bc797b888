"""Counters that outlive every process, and what is counted by them."""
