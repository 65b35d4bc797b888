"""Figures of many graded candidates."""
