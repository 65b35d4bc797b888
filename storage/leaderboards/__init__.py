"""Leaderboards: entries kept with each evaluation, reading a page of them, and records over time."""
