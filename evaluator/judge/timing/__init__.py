"""Timed calls, pairs of them, and the rules by which they become figures."""
