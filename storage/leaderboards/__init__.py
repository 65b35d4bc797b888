"""Leaderboards: their entries, updated with each evaluation, pages of entries, and records over time."""
