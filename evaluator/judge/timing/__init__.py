"""Timed calls, their pairs, and the rules that turn pairs into figures."""
