"""Grading of many candidates: reading them, having them judged, and writing the results."""
