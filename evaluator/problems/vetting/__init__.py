"""Vetting: what a problem lets through that it should not, found by having trivial candidates judged. Torch-free.

``labels`` and ``record`` are what a problem carries about itself; ``candidates`` is what it is tried with, and
``vet`` tries it.
"""

from __future__ import annotations

from evaluator.problems.vetting_labels import MEANING, REFUSALS, Label
from evaluator.problems.vetting_record import NOT_VETTED, Check, Inputs, Vetting, refusal_of, without_figures

__all__ = [
    "MEANING",
    "NOT_VETTED",
    "REFUSALS",
    "Check",
    "Inputs",
    "Label",
    "Vetting",
    "refusal_of",
    "without_figures",
]
