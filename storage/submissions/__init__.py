"""Submissions from being handed in to their end, what is graded once, and what came of each."""
