"""Vetting: trivial candidates are judged to find the wrong answers that a problem lets through. Torch-free.

``probes`` has these candidates, and ``run`` has them judged. ``kerneljudge.terms.vetting_labels`` and
``evaluator.problems.vetting_record`` are the findings that a problem carries about itself.
"""

from __future__ import annotations

from evaluator.problems.vetting_record import NOT_VETTED, Check, Inputs, Vetting, refusal_of, without_figures
from kerneljudge.terms.vetting_labels import MEANING, REFUSALS, Label

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
