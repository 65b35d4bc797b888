"""A demonstration of the whole service on one machine: ``make demo``."""
