"""The findings of an examination, read from the output of its sandboxed process. Torch-free.

Foreign code ran in that process: everything is checked, and an unfit text is no report.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from evaluator.problems.problem import POOLED

__all__ = ["Findings", "Scaled", "Value", "read_findings"]

_LARGEST: Final = 2**60
_CHARACTERS: Final = 400
_ENTRIES: Final = 1000
_LAYOUTS: Final = ("contiguous", "permuted", "gaps")
_BYTES: Final = (
    dict.fromkeys(("bool", "uint8", "int8", "float8_e4m3fn", "float8_e5m2"), 1)
    | dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2)
    | dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8)
    | {"complex128": 16}
)


@dataclass(frozen=True)
class Value:
    """One input or output: a tensor's dtype and shape, or in ``text`` a value that is no tensor.

    ``layout``: ``contiguous``, ``permuted`` (its dimensions lie in another order in memory) or ``gaps``.
    """

    dtype: str | None
    shape: tuple[int, ...]
    text: str
    layout: str = "contiguous"

    @property
    def elements(self) -> int:
        return 0 if self.dtype is None else math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * _BYTES.get(self.dtype or "", 4)


@dataclass(frozen=True)
class Scaled:
    """Constants at some size, and the cost of a forward pass there."""

    values: Mapping[str, int]
    bytes: int
    operations: int


@dataclass(frozen=True)
class Findings:
    """The properties of a reference.

    ``full``: as published. ``backward``: the error of its backward pass, if any. ``state``: buffers and parameters that
    a call changes. ``without_gradient``: parameters that get none. ``row_independent``,
    ``whole_inputs`` and ``pooled``: as in ``Problem``.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    parameters: int
    differentiable: bool
    batch_norm: bool
    full: Scaled
    smoke: Scaled
    scaled: Scaled | None
    forward_s: float
    backward: str
    state: tuple[str, ...]
    without_gradient: tuple[str, ...]
    row_independent: bool
    whole_inputs: tuple[int, ...] = ()
    pooled: str = ""


def read_findings(report: Any, published: Mapping[str, int]) -> Findings:
    """Read a report. ``published``: the constants that it may name. Raises ``ValueError`` where it is none."""
    try:
        smoke = report["smoke"]
        scaled = report.get("scaled")
        return Findings(
            inputs=_values(report["inputs"]),
            outputs=_values(report["outputs"]),
            parameters=_count(report["parameters"]),
            differentiable=report["differentiable"] is True,
            batch_norm=report["batch_norm"] is True,
            full=_scaled({**report["full"], "values": published}, published),
            smoke=_scaled(smoke, published),
            scaled=None if scaled is None else _scaled(scaled, published),
            forward_s=float(smoke["forward_s"]),
            backward=_text(smoke["backward"]),
            state=_names(smoke["state"]),
            without_gradient=_names(smoke["without_gradient"]),
            row_independent=smoke["row_independent"] is True,
            whole_inputs=tuple(map(_count, _bounded(smoke["whole_inputs"]))),
            pooled=_pooled(smoke["pooled"]),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _scaled(report: Mapping[str, Any], published: Mapping[str, int]) -> Scaled:
    values = {_text(name): _count(value) for name, value in report["values"].items()}
    if values.keys() != published.keys() or any(not 1 <= values[name] <= published[name] for name in published):
        raise ValueError("sizes are not those of the reference, made smaller")
    return Scaled(values, _count(report["bytes"]), _count(report["operations"]))


def _values(reports: Sequence[Mapping[str, Any]]) -> tuple[Value, ...]:
    return tuple(
        Value(_text(report["dtype"]), tuple(map(_count, report["shape"])), "", _layout(report["layout"]))
        if "dtype" in report
        else Value(None, (), _text(report["value"]))
        for report in _bounded(reports)
    )


def _names(report: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(_text, _bounded(report)))


def _bounded(report: Any) -> Collection[Any]:
    if not isinstance(report, list) or len(report) > _ENTRIES:
        raise ValueError("a list of a reasonable length was expected")
    return report


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, not {type(value).__name__}")
    return value[:_CHARACTERS]


def _layout(value: Any) -> str:
    if value not in _LAYOUTS:
        raise ValueError(f"a layout was expected, not {value!r}")
    return str(value)


def _pooled(value: Any) -> str:
    if value not in ("", *POOLED):
        raise ValueError(f"a way to pool was expected, not {value!r}")
    return str(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ValueError("a count was expected")
    return value
