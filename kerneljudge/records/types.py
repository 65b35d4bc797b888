"""The types of fields that several records share."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, Literal

__all__ = [
    "Baseline",
    "BatchStatusName",
    "DeviceKind",
    "DiagnosisStatusName",
    "FlagKindName",
    "GradientsName",
    "LabelName",
    "LanguageName",
    "Precision",
    "ScopeName",
    "SpeedupStatusName",
    "StatusName",
    "TierName",
    "Timestamp",
    "ToolName",
    "Track",
    "VerdictName",
    "VerificationStatusName",
    "VisibilityName",
    "WorkerStateName",
]

Baseline = Literal["eager", "ieee", "compile", "compile-max-autotune", "tf32", "float16", "bfloat16"]
DeviceKind = Literal["cpu", "cuda"]
LanguageName = Literal["cpp", "cuda", "torch", "triton"]
Precision = Literal["float32", "float16", "bfloat16"]
ScopeName = Literal["read", "submit", "references", "admin"]
TierName = Literal["check", "quick", "full"]
Track = Literal["inference", "training"]
VisibilityName = Literal["public", "source_hidden", "private"]


class _Checked:
    """The class that the server checks a text against, as ``module:class``.

    Pydantic calls the method below on the server alone. A client has neither pydantic nor these classes.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        module, _, name = self._path.partition(":")
        return handler.generate_schema(getattr(import_module(module), name))


Timestamp = Annotated[str, _Checked("datetime:datetime")]
"""A time as ISO 8601 has it, in UTC: ``2026-11-28T12:00:00Z``."""

BatchStatusName = Annotated[str, _Checked("storage.models:BatchStatus")]
DiagnosisStatusName = Annotated[str, _Checked("storage.models:DiagnosisStatus")]
FlagKindName = Annotated[str, _Checked("evaluator.flags:FlagKind")]
GradientsName = Annotated[str, _Checked("kerneljudge.terms.outcomes:Gradients")]
LabelName = Annotated[str, _Checked("kerneljudge.terms.vetting_labels:Label")]
SpeedupStatusName = Annotated[str, _Checked("kerneljudge.terms.outcomes:SpeedupStatus")]
StatusName = Annotated[str, _Checked("kerneljudge.terms.outcomes:Status")]
ToolName = Annotated[str, _Checked("kerneljudge.terms.findings:Tool")]
VerdictName = Annotated[str, _Checked("kerneljudge.terms.outcomes:Verdict")]
VerificationStatusName = Annotated[str, _Checked("storage.models:VerificationStatus")]
WorkerStateName = Annotated[str, _Checked("storage.models:WorkerState")]
