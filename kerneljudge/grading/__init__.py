"""Grading candidates by the thousand: reading them, having them judged, and writing what came of them."""
