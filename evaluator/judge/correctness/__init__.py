"""Correctness of results: references, limits, comparison, and descriptions of wrong tensors."""
