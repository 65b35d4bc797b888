"""Whether a result is right: references, limits, comparison, and how a wrong tensor is wrong."""
