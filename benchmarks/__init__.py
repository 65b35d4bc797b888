"""The measurements behind the performance claims: ``make bench``."""
