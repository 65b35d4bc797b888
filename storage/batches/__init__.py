"""Batches of submissions, their table of results, and the webhooks at their ends."""
