"""What was excused of a gradient once, or is true of the reference's own, is expected, and no more than that."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from evaluator.config import EvalConfig
from evaluator.evaluation import Gradients
from evaluator.judge.candidate_session import BaselineSession, CandidateSession, SessionContext
from evaluator.judge.correctness.commitment import INPUT_BLOCKS
from evaluator.judge.correctness.compare import Tally
from evaluator.judge.correctness.kinks import Deviation
from evaluator.judge.correctness.verify import CallFindings, ExpectedDeviations, Verifier
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.judge.memory_plan import plan_memory
from evaluator.judge.parts import Part
from evaluator.judge.reference_memory import use_of
from evaluator.judge.result import Outcome
from evaluator.judge.tf32 import tolerances_as_stated
from evaluator.judge.timing.interference import InterferenceMonitor
from evaluator.judge.timing.timed_call import Calibrations
from evaluator.problems.problem import Problem
from evaluator.protocol.control_page import CallMode, CallReport
from evaluator.protocol.shared_memory import Block
from tests.corpus import known_problems
from tests.evaluator.verifying import constructed_reference, verifier_of, verifier_over_blocks

_SHAPE = (100, 200)
_KINKS = 10
_EXCESS = 500.0
"""How far beyond its limit an element is that is on the other side of a kink."""
_EXCUSED = Deviation(_KINKS / math.prod(_SHAPE), _EXCESS, 1.0)
_NAME = "the gradient of input 0"


@pytest.fixture
def expected() -> torch.Tensor:
    torch.manual_seed(11)
    return torch.randn(_SHAPE, dtype=torch.float64)


def _deviating(expected: torch.Tensor, elements: int, times: float, *, first: int = 0) -> torch.Tensor:
    """A gradient of which so many elements, from the ``first`` on, are so many times as far off as what was excused."""
    actual = expected.clone()
    limit = 1e-4 * expected.square().mean().sqrt() + 1e-4 * expected.abs()
    every = torch.arange(elements) * (expected.numel() // elements) + first
    actual.view(-1)[every] += times * 0.99 * _EXCESS * limit.view(-1)[every]
    return actual.float()


def _not_asked() -> None:
    raise AssertionError("the reference is finite: nothing can be lost by overflowing")


def _computed_at_once() -> None:
    """All rows are, as in the reference's own that the tests give."""


def _tally_of(
    problem: Problem,
    actual: torch.Tensor,
    expected: torch.Tensor,
    known: Deviation | None,
    of_baseline: Deviation | None = None,
    own: torch.Tensor | None = None,
    *,
    with_native: bool = True,
) -> tuple[Tally, int]:
    """What is made of it where so much is ``known``, and so much ``of_baseline``, and the reference has it as its
    ``own`` in the problem's precision; and how often it was asked how far the gradient moves (it does not)."""
    usual: ExpectedDeviations = {}
    verifier, _ = verifier_over_blocks(problem, usual=usual)
    if known is not None:
        verifier.expected_deviations[_NAME, Variant.SIGNED] = known
    if of_baseline is not None:
        usual[_NAME, Variant.SIGNED] = of_baseline
    asked = 0

    def moves(_part: Part) -> torch.Tensor | None:
        nonlocal asked
        asked += 1
        return None

    tally = Tally(_NAME, _SHAPE)
    near = expected.float() if own is None else own
    verifier._add(
        tally,
        actual,
        expected,
        lambda: near,
        Variant.SIGNED,
        [moves],
        with_native=with_native,
        all_rows=_computed_at_once,
        saturated=_not_asked,
    )
    return tally, asked


@pytest.mark.parametrize(("elements", "times"), [(1, 1.0), (_KINKS, 1.0), (2 * _KINKS, 1.0), (_KINKS, 3.9)])
def test_about_as_much_is_expected(
    problems: dict[str, Problem], expected: torch.Tensor, elements: int, times: float
) -> None:
    tally, asked = _tally_of(problems["relu"], _deviating(expected, elements, times), expected, _EXCUSED)
    assert tally.passed
    assert (asked, tally.widened, tally.worst, tally.evidence) == (0, 1.0, None, None)
    assert tally.reference_max_rel is not None
    assert tally.max_abs > 100 * tally.reference_max_rel
    tally, asked = _tally_of(problems["relu"], _deviating(expected, elements, times), expected, None)
    assert not tally.passed
    assert asked == 1


@pytest.mark.parametrize(("elements", "times"), [(2 * _KINKS + 1, 1.0), (_KINKS, 4.5), (20_000, 0.5)])
def test_more_is_looked_into(problems: dict[str, Problem], expected: torch.Tensor, elements: int, times: float) -> None:
    tally, asked = _tally_of(problems["relu"], _deviating(expected, elements, times), expected, _EXCUSED)
    assert not tally.passed
    assert asked == 1
    assert tally.right == tally.total - elements
    assert tally.worst is not None
    assert tally.worst.excess == pytest.approx(0.99 * times * _EXCESS, rel=0.05)
    assert tally.evidence is not None


class Own:
    """A gradient whose reference's own has kinks, and a verifier that counts what it asks for. What it looks into is
    next to kinks."""

    def __init__(self, problem: Problem, expected: torch.Tensor) -> None:
        self._verifier, _ = verifier_over_blocks(problem)
        self._expected = expected
        self.computed = 0
        self.looked_into = 0

    def _compute(self) -> torch.Tensor:
        self.computed += 1
        return _deviating(self._expected, _KINKS, 1.0, first=7)

    def _move(self, _part: Part) -> torch.Tensor:
        self.looked_into += 1
        return torch.full_like(self._expected, 1e3)

    def add(self, actual: torch.Tensor, variant: Variant = Variant.SIGNED, *, with_native: bool = False) -> Tally:
        tally = Tally(_NAME, _SHAPE)
        self._verifier._add(
            tally,
            actual,
            self._expected,
            self._compute,
            variant,
            [self._move],
            with_native=with_native,
            all_rows=_computed_at_once,
            saturated=_not_asked,
        )
        return tally


@pytest.mark.parametrize("with_native", [False, True])
def test_once_a_gradient_was_looked_into_as_much_is_expected_as_the_references_own_has(
    problems: dict[str, Problem], expected: torch.Tensor, with_native: bool
) -> None:
    own = Own(problems["relu"], expected)
    assert own.add(_deviating(expected, 1, 1.0), with_native=with_native).passed
    assert own.looked_into == 1, "whatever the reference's own has"
    for elements, times in ((1, 1.0), (2 * _KINKS, 1.0), (_KINKS, 3.9)):
        tally = own.add(_deviating(expected, elements, times), Variant.MIXED, with_native=with_native)
        assert tally.passed
        assert (own.looked_into, tally.widened, tally.worst) == (1, 1.0, None)
    for number, (elements, times) in enumerate(((4 * _KINKS + 1, 1.0), (_KINKS, 17.0))):
        own.add(_deviating(expected, elements, times), Variant.WIDE, with_native=with_native)
        assert own.looked_into == 2 + number


def test_what_is_always_wrong_in_as_few_places_as_the_references_own_has_is_looked_into(
    problems: dict[str, Problem], expected: torch.Tensor
) -> None:
    actual = expected.float()
    actual[-1, -_KINKS:] *= -1.0  # a column that a kernel forgets, say
    near = _deviating(expected, 2 * _KINKS, 1e4)
    verifier, _ = verifier_over_blocks(problems["relu"])
    tally = Tally(_NAME, _SHAPE)
    moves = [lambda _part: 2 * (near - expected).abs()]
    verifier._add(
        tally,
        actual,
        expected,
        lambda: near,
        Variant.SIGNED,
        moves,
        with_native=True,
        all_rows=_computed_at_once,
        saturated=_not_asked,
    )
    assert tally.right == tally.total - _KINKS


def test_who_is_off_where_the_references_own_gradient_is_off_everywhere_is_looked_into(
    problems: dict[str, Problem], expected: torch.Tensor
) -> None:
    own = _deviating(expected, expected.numel() // 200, 1.0, first=7)
    _, asked = _tally_of(problems["relu"], _deviating(expected, _KINKS, 1.0), expected, None, own=own)
    assert asked == 1


def test_the_references_own_gradient_is_computed_where_it_decides(
    problems: dict[str, Problem], expected: torch.Tensor
) -> None:
    own = Own(problems["relu"], expected)
    assert own.add(expected.float()).passed
    assert own.computed == 0
    assert own.add(_deviating(expected, _KINKS, 1.0)).passed
    assert own.computed > 0
    before = own.computed
    assert own.add(_deviating(expected, _KINKS, 1.0)).passed  # as is known by now
    assert own.computed == before


@pytest.mark.parametrize("known", [None, Deviation(_EXCUSED.share / _KINKS, 1.0, 1.0)])
def test_what_is_excused_of_the_baseline_later_is_expected_as_well(
    problems: dict[str, Problem], expected: torch.Tensor, known: Deviation | None
) -> None:
    tally, asked = _tally_of(problems["relu"], _deviating(expected, 2 * _KINKS, 3.9), expected, known, _EXCUSED)
    assert tally.passed
    assert asked == 0
    tally, asked = _tally_of(problems["relu"], _deviating(expected, 2 * _KINKS + 1, 1.0), expected, known, _EXCUSED)
    assert asked == 1
    assert tally.right == tally.total - 2 * _KINKS - 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_never_expected(
    problems: dict[str, Problem], expected: torch.Tensor, value: float
) -> None:
    actual = expected.float()
    actual[3, 7] = value
    tally, asked = _tally_of(problems["relu"], actual, expected, _EXCUSED)
    assert asked == 1
    assert tally.right == tally.total - 1


def test_a_gradient_that_is_missing_for_the_most_part_is_not_expected(
    problems: dict[str, Problem], expected: torch.Tensor
) -> None:
    # Within the share that is expected, since zeros of both do not count: but much less flows back.
    sparse = torch.zeros_like(expected)
    sparse.view(-1)[: 2 * _KINKS] = 1e-2
    actual = sparse.float()
    actual.view(-1)[:_KINKS] = 0.0
    tally, asked = _tally_of(problems["relu"], actual, sparse, Deviation(1.0, 1e9, 1.0))
    assert asked == 1
    assert tally.right == tally.total - _KINKS


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("largest", [62.0, 3.0])
def test_the_rest_of_terms_that_cancel_is_nothing_and_what_is_left_out_is_missing(largest: float, seed: int) -> None:
    """A stable softmax, whose plain reference is finite in both precisions in one row alone. With one large score,
    nothing flows back there but such a rest: 1e-18 beside 1e-2. With usual scores, a part is left out."""
    torch.manual_seed(seed)
    problem = known_problems()["honest_softmax_of_naive"]
    verifier, blocks = verifier_over_blocks(problem)
    given = torch.randn(blocks["inputs"].tensors[0].shape)
    given[1:64] += 300.0  # too much for float32
    given[64:] += 900.0  # and for float64
    given[0, 3] = largest
    upstream = torch.randn_like(given)
    leaf = given.clone().requires_grad_()
    scores = torch.exp(leaf - leaf.amax(-1, keepdim=True))
    output = scores / scores.sum(-1, keepdim=True)
    torch.autograd.backward(output, upstream)
    assert leaf.grad is not None
    if largest < 20.0:
        leaf.grad[0, leaf.grad[0].abs().topk(8).indices] = 0.0
    findings = _findings(verifier, blocks, given, upstream, output.detach(), leaf.grad)
    assert findings.gradients is (Gradients.MATCH if largest > 20.0 else Gradients.MISMATCH), findings.message


def _findings(verifier: Verifier, blocks: dict[str, Block], *tensors: torch.Tensor) -> CallFindings:
    """What is found of a call whose inputs, upstream gradient, output and gradient are these."""
    names = ("inputs", "upstream", "outputs", "input_gradients")
    commitment = verifier.commitments.prepare(names)
    for name, tensor in zip(names, tensors, strict=True):
        blocks[name].tensors[0].copy_(tensor)
        verifier.commitments.commit(
            commitment, {name: [tensor.clone()] if name in INPUT_BLOCKS else blocks[name].tensors}
        )
    verifier.commitments.pick(commitment, names)
    report = CallReport(device_ms=1.0, peak_bytes=0, present=3, forward_ms=0.5)
    return verifier.verify_gradients(commitment, report, 0, Variant.WIDE, with_native=True)


def test_what_is_excused_of_the_baseline_of_a_session_reaches_all_of_its_candidates(
    problems: dict[str, Problem], expected: torch.Tensor
) -> None:
    common = _common_of(problems["relu"])
    standard = BaselineSession(common, common.baseline)
    judged = [CandidateSession(common, standard, common.baseline, Outcome(), lambda *_: None) for _ in range(2)]
    actual = _deviating(expected, _KINKS, 1.0)

    def looked_into(verifier: Verifier) -> bool:
        asked = []
        tally = Tally(_NAME, _SHAPE)
        moves = [lambda _part: asked.append(tally)]
        verifier._add(
            tally,
            actual,
            expected,
            expected.float,
            Variant.SIGNED,
            moves,
            with_native=False,
            all_rows=_computed_at_once,
            saturated=_not_asked,
        )
        return bool(asked)

    assert all(looked_into(judgement._verifier) for judgement in judged)
    # Found of it in the course of the session, after the candidates were there.
    standard._verifier.expected_deviations[_NAME, Variant.SIGNED] = _EXCUSED
    assert not any(looked_into(judgement._verifier) for judgement in judged)


def _common_of(problem: Problem) -> SessionContext:
    """What a session of two judges with, on a CPU."""
    reference = constructed_reference(problem, "smoke")
    _, blocks = verifier_of(reference, problem, None)
    device, config = CpuDevice(), EvalConfig(device="cpu", size="smoke")
    unused: Any = None
    return SessionContext(
        problem=problem,
        config=config,
        device=device,
        baseline=unused,
        reference=reference,
        tolerances=tolerances_as_stated(problem, config, reference.signature),
        blocks=blocks,
        plan=plan_memory(
            reference.signature,
            use_of(problem, reference, None, gradients=True),
            device.capacity(),
            sliced=False,
            gradients=True,
            limit=None,
            contexts=2,
            candidates=2,
        ),
        source=InputSource(reference.get_inputs, device.torch_device, variants=True),
        sampled={CallMode.FORWARD: Variant.MIXED, CallMode.BACKWARD: Variant.MIXED},
        training=True,
        deadline=math.inf,
        calibrations=Calibrations(),
        used_before=0,
        spare_bytes=0,
        candidates=2,
        fault_context=lambda _side: nullcontext(),
        interference=InterferenceMonitor(2),
    )
