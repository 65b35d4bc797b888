"""Types of the query parameters of pages. A browser also sends the fields of a form that were left empty."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BeforeValidator

from evaluator.evaluation import Verdict
from kerneljudge.records import TierName

__all__ = ["ChosenTier", "ChosenVerdict", "Word"]

Word = Annotated[str | None, Query(max_length=200)]
ChosenTier = Annotated[TierName | None, BeforeValidator(lambda given: given or None), Query()]
ChosenVerdict = Annotated[Verdict | None, BeforeValidator(lambda given: given or None), Query()]
