"""Distinct honest candidates by the dozen, made from templates."""

from benchmarks.candidates.making import Made, make_candidates

__all__ = ["Made", "make_candidates"]
