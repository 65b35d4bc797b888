"""Counters that outlive every process, and the metrics that they count."""
