"""The device as the judge uses it: quiet, cold, watched, and how fast it can be."""
