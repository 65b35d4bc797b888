"""Candidates: their sources, and reading one out of the answer of a language model."""
