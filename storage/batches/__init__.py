"""Batches of submissions, their table of results, and telling somebody that one is over."""
