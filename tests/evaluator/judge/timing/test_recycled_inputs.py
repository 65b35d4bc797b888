"""The tensors that calls are given: when they are shown, and which of them the baseline is given once more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

import pytest
import torch

from evaluator.config import Limits
from evaluator.judge.correctness.commitment import INPUT_BLOCKS
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.judge.link import TimedCall
from evaluator.judge.timing.timed_call import Calibrations, Caller, Release
from evaluator.problems.problem import Problem
from evaluator.protocol.control_page import CallMode, CallReport, Location, LocationKind
from evaluator.protocol.shared_memory import Block
from tests.evaluator.verifying import constructed_reference, verifier_of

_CALL_S = 60.0
_BACKWARD = CallMode.BACKWARD


class Outliving(CpuDevice):
    """What does not stop with the processes that asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self.asynchronous = True


class Played:
    """Side and link in one: notes what each call of a model was given, and what was shown ``around`` it, while it
    answers and delivers. ``spoils`` writes to what is shared."""

    def __init__(self, name: str, blocks: dict[str, Block], *, spoils: bool = False) -> None:
        self.name = name
        self.link: Any = self
        self.freezer: Any = self
        self.memory: Any = self
        self.was_open = False
        self.kept: dict[CallMode, int] = {}
        self.possible_state = 0
        self.shares = True
        self.ran_while_stopped_s = 0.0
        self.given: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
        self.around: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
        self._blocks = blocks
        self._spoils = spoils

    def thaw(self) -> None:
        """It runs."""

    def waits(self) -> dict[int, int]:
        return {}

    def first_repeated(self, _tensors: Any) -> int | None:
        """No memory is in several places."""

    def stop(self) -> None:
        """It stands still."""

    def halt(self) -> None:
        """Its threads stand still."""

    def stopped_afterwards(self) -> AbstractContextManager[None]:
        return nullcontext()

    def open_gate(self, _number: int) -> None:
        """It waits for nothing."""

    def locations(self, count: int) -> list[Location]:
        """All has been copied to its place."""
        return [Location(LocationKind.SHARED)] * count

    def state_outputs(self) -> int:
        return 0

    def end_call(self) -> None:
        """Nothing is held of it."""

    def call(
        self,
        mode: CallMode,
        _timeout_s: float,
        before: Callable[[int], None] = lambda _number: None,
        wake: Callable[[], None] = lambda: None,
        on_done: Callable[[], None] = lambda: None,
    ) -> TimedCall:
        if mode not in (CallMode.FORWARD, CallMode.BACKWARD):
            inputs, upstream = ([each.clone() for each in self._blocks[name].tensors] for name in INPUT_BLOCKS)
            self.around.append((inputs, upstream))
        before(1)
        wake()
        if mode in (CallMode.FORWARD, CallMode.BACKWARD):
            upstream = self._blocks["upstream"].tensors if mode is CallMode.BACKWARD else []
            inputs = self._blocks["inputs"].tensors
            self.given.append(([each.clone() for each in inputs], [each.clone() for each in upstream]))
            if self._spoils:
                for tensor in (*inputs, *upstream):
                    tensor.fill_(torch.nan)
        on_done()
        return TimedCall(1.0, CallReport(1.0, 0, 0, 0.0))


def _play(
    problem: Problem, device: CpuDevice, calibrations: Calibrations | None = None
) -> tuple[Callable[..., None], Played, Played]:
    """What makes a call of one side, and both sides."""
    reference = constructed_reference(problem, "smoke")
    verifier, blocks = verifier_of(reference, problem, None, weights=True)
    candidate, baseline = Played("candidate", blocks, spoils=True), Played("baseline", blocks)
    source = InputSource(reference.get_inputs, device.torch_device, variants=True)
    sides: Any = candidate, baseline
    specs = reference.signature.input_tensors
    caller = Caller(
        device,
        Limits(),
        *sides,
        blocks,
        specs,
        source,
        verifier.commitments,
        False,
        lambda _side: nullcontext(),
        {},
        {},
        {},
        calibrations or Calibrations(),
    )

    def call(side: Any, mode: CallMode, *, compared: bool, alone: bool = False) -> None:
        caller.exclusive = alone
        caller.call(side, mode, Variant.MIXED, _CALL_S, spot_check=True, compared=compared)

    return call, candidate, baseline


def _same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(*(chain(*each) for each in (one, other)), strict=True))


@pytest.mark.parametrize("mode", [CallMode.FORWARD, CallMode.BACKWARD])
def test_the_baseline_is_given_what_was_given_before_as_it_was(mode: CallMode, problems: dict[str, Problem]) -> None:
    call, candidate, baseline = _play(problems["relu"], CpuDevice())
    call(candidate, mode, compared=True)
    call(baseline, mode, compared=False)
    call(baseline, mode, compared=False)
    call(candidate, mode, compared=True)
    call(baseline, mode, compared=False)
    first, second = candidate.given
    assert all(tensor.isfinite().all() for each in first for tensor in each)
    # Once: then it is given what is new.
    assert [_same(each, first) for each in baseline.given] == [True, False, False]
    assert [_same(each, second) for each in baseline.given] == [False, False, True]
    assert not any(torch.equal(a, b) for a, b in zip(chain(*first), chain(*second), strict=True))


def test_of_pairs_whose_order_changes_the_baseline_is_given_nothing_new(
    problems: dict[str, Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawing is what a call takes longest for on a CPU."""
    call, candidate, baseline = _play(problems["relu"], CpuDevice())
    drawn: list[int] = []
    make = InputSource.make
    monkeypatch.setattr(
        InputSource, "make", lambda *arguments, **options: drawn.append(1) or make(*arguments, **options)
    )
    call(candidate, CallMode.FORWARD, compared=True)
    for _ in range(3):
        for side in (baseline, candidate, candidate, baseline):
            call(side, CallMode.FORWARD, compared=side is candidate)
    assert len(drawn) == 7, "for the candidate's calls alone"
    given = [each[0][0] for each in baseline.given]
    assert all(any(torch.equal(each, other[0][0]) for other in candidate.given) for each in given)
    assert not any(torch.equal(one, other) for index, one in enumerate(given) for other in given[:index]), "once each"


def test_before_there_is_a_candidate_every_other_call_is_given_something_new(problems: dict[str, Problem]) -> None:
    call, _, baseline = _play(problems["relu"], CpuDevice())
    for _ in range(4):
        call(baseline, CallMode.BACKWARD, compared=False)
    first, second, third, fourth = baseline.given
    assert _same(first, second)
    assert _same(third, fourth)
    assert not any(torch.equal(a, b) for a, b in zip(chain(*first), chain(*third), strict=True))


@pytest.mark.parametrize("device", [CpuDevice, Outliving])
def test_nothing_that_a_candidate_is_given_is_shown_before_or_after_its_call(
    device: type[CpuDevice], problems: dict[str, Problem]
) -> None:
    call, candidate, baseline = _play(problems["relu"], device())
    for side in (candidate, baseline, candidate):
        call(side, CallMode.BACKWARD, compared=True)
    for given in candidate.given:
        for side in (candidate, baseline):
            assert side.around
            for shown in side.around:
                assert not any(torch.equal(a, b) for a, b in zip(chain(*given), chain(*shown), strict=True))


@pytest.mark.parametrize("mode", [CallMode.FORWARD, CallMode.BACKWARD])
def test_a_precheck_of_the_baseline_writes_what_its_call_is_given_and_so_does_one_of_the_candidate_after_it(
    mode: CallMode, problems: dict[str, Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that waits for any value of it would begin in the precheck, since nothing changes in between."""
    device = Outliving()
    calibrations = Calibrations(releases={mode: Release(False, True)})  # a short call has another one before it
    call, candidate, baseline = _play(problems["relu"], device, calibrations)
    names = INPUT_BLOCKS if mode is CallMode.BACKWARD else INPUT_BLOCKS[:1]
    shown: list[list[torch.Tensor]] = []
    monkeypatch.setattr(
        device,
        "probe",
        lambda: shown.append([each.clone() for name in names for each in baseline._blocks[name].tensors]),
    )
    call(baseline, mode, compared=True)
    given = [list(chain(*each)) for each in baseline.given]
    assert len(given) == 2
    assert len(shown) in (1, 2)
    assert all(_all_equal(one, other) for one in shown for other in given)
    before = len(shown)
    call(candidate, mode, compared=True, alone=True)
    assert len(shown) > before
    assert all(_all_equal(each, given[0]) for each in shown[before:])
    assert not any(_all_equal(each, given[0]) for each in (list(chain(*each)) for each in candidate.given))


def _all_equal(ones: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


def test_what_is_written_over_has_every_bit_in_some_call(problems: dict[str, Problem]) -> None:
    call, candidate, _ = _play(problems["relu"], CpuDevice())
    words: list[int] = []
    for _ in range(40):
        call(candidate, CallMode.FORWARD, compared=True)
        words.append(int(candidate._blocks["inputs"].memory.view(torch.int64)[0]))
    set_bits = [sum(word >> bit & 1 for word in words) for bit in range(64)]
    assert min(set_bits) > 5
    assert max(set_bits) < 35


def test_a_call_before_a_short_one_is_given_tensors_of_its_own(problems: dict[str, Problem]) -> None:
    call, candidate, _ = _play(
        problems["relu"], CpuDevice(), calibrations=Calibrations(releases={_BACKWARD: Release(True, True)})
    )
    call(candidate, CallMode.BACKWARD, compared=True)
    warmup, timed = candidate.given
    assert not any(torch.equal(a, b) for a, b in zip(chain(*warmup), chain(*timed), strict=True))


def test_of_another_kind_it_is_given_something_new(problems: dict[str, Problem]) -> None:
    call, candidate, baseline = _play(problems["relu"], CpuDevice())
    call(candidate, CallMode.FORWARD, compared=True)
    call(baseline, CallMode.BACKWARD, compared=False)
    (inputs, upstream), (before, _) = baseline.given[0], candidate.given[0]
    assert not torch.equal(inputs[0], before[0])
    assert 1e-6 < float(upstream[0].square().mean().sqrt()) < 1e3


@pytest.mark.parametrize(("device", "compared"), [(Outliving, False), (CpuDevice, True)])
def test_what_is_compared_or_follows_work_that_is_left_is_new(
    device: type[CpuDevice], compared: bool, problems: dict[str, Problem]
) -> None:
    call, candidate, baseline = _play(problems["relu"], device())
    call(candidate, CallMode.BACKWARD, compared=True)
    call(baseline, CallMode.BACKWARD, compared=compared)
    assert not torch.equal(baseline.given[0][0][0], candidate.given[0][0][0])
    assert not torch.equal(baseline.given[0][1][0], candidate.given[0][1][0])


def test_what_is_read_to_empty_the_caches_has_memory_of_its_own() -> None:
    device = CpuDevice()
    device.flush_cache()
    # Whatever was never written is the same page of zeros, over and over.
    assert device._flush.nbytes == 2 * device.cache_bytes
    assert bool(device._flush.all())
