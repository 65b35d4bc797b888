"""Kinds of inputs for timed calls: those on which the reference is conclusive.

On mixed inputs half of a logarithm is NaN, and in half precision much may overflow. A timed call has to be verified as
well as a trial. So it gets inputs of a kind on which nearly everything can be compared.

Finding the kind takes several calls of the reference, and most problems give the same answer each time. One answer is
from one draw of inputs. So an answer is trusted once several evaluations had it, and until a timed call is inconclusive
after all.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import torch

from evaluator.judge.correctness.nonfinite import mask_nonfinite
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.inputs.drawing import InputSource, Variant, make_upstream
from evaluator.judge.signature import Signature
from evaluator.protocol.control_page import CallMode
from evaluator.protocol.shared_memory import TensorSpec

__all__ = [
    "MIN_CONCLUSIVE_SHARE",
    "USUAL_PROBLEMS",
    "Kinds",
    "UsualProblems",
    "cloned",
    "draw_call",
    "timed_kinds",
    "usual_kinds",
]

MIN_CONCLUSIVE_SHARE: Final = 0.6
"""The least share of each tensor that can be compared, for inputs of timed calls."""
_NEARLY_ALL: Final = 0.99
_KINDS: Final = (
    Variant.MIXED,
    Variant.AS_WRITTEN,
    Variant.SIGNED,
    Variant.STRUCTURED,
    Variant.WIDE,
    Variant.SPECIAL,
)


_AGREEING: Final = 3


class Kinds(NamedTuple):
    """The kind of inputs of each mode of timed calls that has one. ``usual``: whether it is the first available kind
    for each mode, since nearly everything can be compared on it."""

    found: dict[CallMode, Variant]
    usual: bool


class UsualProblems:
    """Problems of which several evaluations found the usual kinds, and none another result. Each is known by a hashable
    key."""

    def __init__(self) -> None:
        self._evaluations: Counter[Hashable] = Counter()
        self._unusual: set[Hashable] = set()

    def __contains__(self, problem: Hashable) -> bool:
        return problem not in self._unusual and self._evaluations[problem] >= _AGREEING

    def note(self, problem: Hashable, *, usual: bool) -> None:
        """Note the result of an evaluation. After one unusual result, the problem is tested each time."""
        if usual:
            self._evaluations[problem] += 1
        else:
            self._unusual.add(problem)


USUAL_PROBLEMS: Final = UsualProblems()
"""Shared by all sessions of this process."""


def usual_kinds(source: InputSource, modes: Sequence[CallMode]) -> dict[CallMode, Variant]:
    """Return the result of ``timed_kinds`` in the usual case."""
    return dict.fromkeys(modes, next(filter(source.available, _KINDS)))


def timed_kinds(
    reference: Reference, source: InputSource, cut: tuple[int, int] | None, modes: Sequence[CallMode]
) -> Kinds:
    """Return a kind of inputs for each of these modes of timed calls.

    It is the first kind of which nearly everything can be compared, otherwise the kind of which most can be. A mode
    without a conclusive kind is left out. The reference is evaluated in both precisions, in the rows of ``cut`` (all
    rows for ``None``).
    """
    found: dict[CallMode, Variant] = {}
    usual = True
    for mode in modes:
        shares: dict[Variant, float] = {}
        for kind in filter(source.available, _KINDS):
            shares[kind] = _conclusive_share(reference, source, kind, cut, gradients=mode is CallMode.BACKWARD)
            if shares[kind] >= _NEARLY_ALL:
                break
        best = max(shares, key=shares.__getitem__)
        usual = usual and shares[best] >= _NEARLY_ALL and len(shares) == 1
        if shares[best] >= MIN_CONCLUSIVE_SHARE:
            found[mode] = best
    return Kinds(found, usual)


def draw_call(
    signature: Signature, source: InputSource, kind: Variant, cut: tuple[int, int] | None, *, gradients: bool
) -> tuple[list[Any], list[torch.Tensor]]:
    """Return the arguments of one call on inputs of this kind, and upstream gradients: none unless requested. ``cut``:
    the rows to compute, or ``None`` for all."""
    made = source.make(signature.input_tensors, kind, secrets.randbits(63), avoid_zero=gradients)
    made = signature.rows_of_inputs(made, cut)
    tensors = iter(made)
    values = [
        value.arrange(next(tensors)) if isinstance(value, TensorSpec) else value["value"] for value in signature.inputs
    ]
    if not gradients:
        return values, []
    device = made[0].device if made else torch.device("cpu")
    weights = [spec for _, spec in signature.weights]
    upstream = make_upstream(signature.outputs, weights, secrets.randbits(63), device)
    return values, signature.rows_of_outputs(upstream, cut)


def cloned(values: Sequence[Any]) -> list[Any]:
    """Return copies of the tensors among these arguments, for a reference that may write to its inputs."""
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def _conclusive_share(
    reference: Reference, source: InputSource, kind: Variant, cut: tuple[int, int] | None, *, gradients: bool
) -> float:
    """Return the conclusive share of the outputs on inputs of this kind, or of the gradients and outputs. The tensor
    with the least share counts."""
    values, upstream = draw_call(reference.signature, source, kind, cut, gradients=gradients)
    given = cloned(values)
    if not gradients:
        return _least_share(zip(reference.exact_outputs(values), reference.native_outputs(given), strict=True))
    exact, own = reference.exact_gradients(values, upstream), reference.native_gradients(given, upstream)
    pairs = [*zip(exact.outputs, own.outputs, strict=True)]
    for some, others in ((exact.inputs, own.inputs), (exact.weights, own.weights)):
        pairs += [
            (one, other) for one, other in zip(some, others, strict=True) if one is not None and other is not None
        ]
    return _least_share(pairs)


def _least_share(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
    return min(
        (mask_nonfinite(own, exact, own).conclusive_share for exact, own in pairs if exact.is_floating_point()),
        default=1.0,
    )
