"""The HTTP API and its pages. Routes only translate; what they say lives in ``storage``."""
