"""Submissions from their receipt to their end, their deduplication, and their outcomes."""
