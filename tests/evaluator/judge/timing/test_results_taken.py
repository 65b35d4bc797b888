"""Results that the judge takes from where a runner has computed them, and those that a runner delivers."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluator.config import Limits
from evaluator.judge.correctness.commitment import Commitment
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.errors import Violation
from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.judge.link import TimedCall
from evaluator.judge.runner_memory import ProcessMemory, Unreadable
from evaluator.judge.timing.timed_call import Calibrations, Caller, Participant, Release
from evaluator.problems.problem import Problem
from evaluator.protocol.control_page import CallMode, CallReport, Location, LocationKind
from evaluator.protocol.shared_memory import Block, Runs, TensorSpec
from evaluator.runner.locations import Locator
from tests.evaluator.verifying import constructed_reference, verifier_of

_CALL_S = 60.0
_CALLS = (CallMode.FORWARD, CallMode.BACKWARD)


@dataclass
class Runner:
    """A runner of ReLU in this process: link and freezer in one. ``happened``: modes of calls, "woken" and
    "stopped" in order; ``computed``: what its calls have returned; ``place`` puts a result where it is to lie."""

    blocks: dict[str, Block]
    place: Callable[[torch.Tensor], torch.Tensor] = torch.clone
    kept: int = 0
    happened: list[Any] = field(default_factory=list)
    computed: list[list[torch.Tensor]] = field(default_factory=list)
    shares: bool = True
    ran_while_stopped_s: float = 0.0

    def thaw(self) -> None:
        self.happened.append("woken")

    def freeze(self) -> None:
        self.happened.append("stopped")

    def halt(self) -> None:
        self.happened.append("stopped")

    def waits(self) -> dict[int, int]:
        return {}

    def state_outputs(self) -> int:
        return self.kept

    def locations(self, count: int) -> list[Location]:
        locator, absent = Locator(torch.device("cpu"), readable=True), Location(LocationKind.ABSENT)
        found = []
        for value in self.computed[-1]:
            told = locator.locate(value, value)
            found.append(absent if told is None else Location.decode(told))
        return found[:count]

    def call(
        self,
        mode: CallMode,
        _timeout_s: float,
        *,
        before: Callable[[int], None] = lambda _number: None,
        wake: Callable[[], None] = lambda: None,
        on_done: Callable[[], None] = lambda: None,
    ) -> TimedCall:
        before(1)
        wake()
        self.happened.append(mode)
        if mode in _CALLS:
            (given,) = self.blocks["inputs"].tensors
            results = {"outputs": given.relu()}
            if mode is CallMode.BACKWARD:
                results["input_gradients"] = self.blocks["upstream"].tensors[0] * (given > 0)
            self.computed.append([self.place(each) for each in results.values()])
        elif mode is CallMode.DELIVER:
            for name, value in zip(("outputs", "input_gradients"), self.computed[-1], strict=False):
                self.blocks[name].tensors[0].copy_(value)
        on_done()
        present = 3 if mode is CallMode.BACKWARD else 0
        return TimedCall(1.0, CallReport(1.0, 0, present, 0.0))


@dataclass
class Calls:
    caller: Caller
    runner: Runner
    side: Participant

    def make(self, mode: CallMode, *, spot_check: bool = False, compared: bool = True) -> tuple[TimedCall, Commitment]:
        self.runner.happened.clear()
        return self.caller.call(self.side, mode, Variant.MIXED, _CALL_S, spot_check=spot_check, compared=compared)

    def outcome(self, mode: CallMode, made: tuple[TimedCall, Commitment]) -> tuple[Any, Any]:
        verifier = self.verifier
        call, commitment = made
        if mode is CallMode.FORWARD:
            found = verifier.verify_outputs(commitment, Variant.MIXED, with_native=False)
        else:
            found = verifier.verify_gradients(commitment, call.report, 0, Variant.MIXED, with_native=False)
        return found.verdict, str(found.gradients)

    verifier: Any = None


@pytest.fixture
def calls(problems: dict[str, Problem]) -> Callable[..., Calls]:
    def make(*, slice_elements: int | None = None, calibrations: Calibrations | None = None, **options: Any) -> Calls:
        reference = constructed_reference(problems["relu"], "smoke")
        device = CpuDevice()
        verifier, blocks = verifier_of(reference, problems["relu"], slice_elements, weights=True)
        runner = Runner(blocks, **options)
        link: Any = runner
        side = Participant("baseline", link, link, ProcessMemory(os.getpid()))
        source = InputSource(reference.get_inputs, device.torch_device, variants=True)
        specs, nobody = reference.signature.input_tensors, lambda _side: nullcontext()
        shared = (device, Limits(), side, side, blocks, specs, source, verifier.commitments, False, nobody)
        return Calls(Caller(*shared, {}, {}, {}, calibrations or Calibrations()), runner, side, verifier)

    return make


def _transposed(value: torch.Tensor) -> torch.Tensor:
    return value.t().contiguous().t()


def _part_of_a_larger_one(value: torch.Tensor) -> torch.Tensor:
    larger = torch.full((value.shape[0], 2, value.shape[1]), 7.0)
    larger[:, 0] = value
    return larger[:, 0]


@pytest.mark.parametrize("place", [torch.clone, _transposed, _part_of_a_larger_one])
@pytest.mark.parametrize("mode", _CALLS)
def test_after_a_delivery_the_judge_takes_results_and_nothing_runs_past_done(
    mode: CallMode, place: Callable[[torch.Tensor], torch.Tensor], calls: Callable[..., Calls]
) -> None:
    made = calls(place=place)
    first = made.outcome(mode, made.make(mode))
    assert made.runner.happened[-3:] == ["woken", CallMode.DELIVER, "stopped"]
    call = made.make(mode)
    assert made.runner.happened.index("stopped") > made.runner.happened.index(mode)
    after = made.runner.happened[made.runner.happened.index(mode) + 1 :]
    assert set(after) == {"stopped"}
    assert made.outcome(mode, call) == first
    assert first[0] is None
    assert all(value is not None and bool(value.isnan().all()) for value in made.runner.computed[-1])
    if place is _part_of_a_larger_one:
        value = made.runner.computed[-1][0]
        assert value is not None
        whole = value.as_strided((value.shape[0], 2, value.shape[1]), (2 * value.shape[1], value.shape[1], 1))
        assert bool((whole[:-1, 1] == 7).all()), "what lies between is somebody else's"


def test_what_is_wrong_is_wrong_where_it_is_taken(calls: Callable[..., Calls]) -> None:
    made = calls()
    made.make(CallMode.FORWARD)
    made.runner.place = lambda value: value + 1
    assert made.outcome(CallMode.FORWARD, made.make(CallMode.FORWARD))[0] is not None


@pytest.mark.parametrize("place", [torch.clone, _transposed])
def test_at_a_glance_the_rows_of_it_are_taken(
    place: Callable[[torch.Tensor], torch.Tensor], calls: Callable[..., Calls]
) -> None:
    made = calls(place=place, slice_elements=2**19)
    made.make(CallMode.FORWARD, spot_check=True)
    poisoned = made.caller.blocks["outputs"].memory
    call, commitment = made.make(CallMode.FORWARD, spot_check=True)
    assert commitment.rows is not None
    expected = commitment.kept["inputs", 0].relu()
    assert torch.equal(commitment.picks["outputs", 0], expected)
    assert bool((poisoned.view(torch.int64) == poisoned.view(torch.int64)[0]).all()), "nothing else was copied"
    assert made.outcome(CallMode.FORWARD, (call, commitment))[0] is None


def test_outputs_that_are_the_model_s_own_state_are_not_written_to(calls: Callable[..., Calls]) -> None:
    made = calls(kept=1)
    for _ in range(2):
        made.make(CallMode.BACKWARD)
    output, gradient = made.runner.computed[-1]
    assert output is not None
    assert gradient is not None
    assert not bool(output.isnan().any())
    assert bool(gradient.isnan().all()), "a gradient is nobody's state"


def test_what_nobody_looks_at_is_spoiled_all_the_same(calls: Callable[..., Calls]) -> None:
    # Another call comes before each.
    made = calls(calibrations=Calibrations(releases={CallMode.FORWARD: Release(True, True)}))
    made.make(CallMode.FORWARD)
    before = len(made.runner.computed)
    made.make(CallMode.FORWARD, compared=False)
    warmup, timed = made.runner.computed[before:]
    for computed in (warmup, timed):
        assert computed[0] is not None
        assert bool(computed[0].isnan().all())


@pytest.mark.parametrize("spot_check", [False, True])
def test_what_was_copied_within_the_call_is_taken_from_there_and_nothing_runs_for_it(
    calls: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch, *, spot_check: bool
) -> None:
    made = calls(slice_elements=2**19)
    made.make(CallMode.FORWARD)
    told = Runner.locations

    def shared(runner: Runner, count: int) -> list[Location]:
        (output,) = runner.computed[-1]
        assert output is not None
        runner.blocks["outputs"].tensors[0].copy_(output)
        return [replace(each, kind=LocationKind.SHARED) for each in told(runner, count)]

    monkeypatch.setattr(Runner, "locations", shared)
    call, commitment = made.make(CallMode.FORWARD, spot_check=spot_check)
    assert made.outcome(CallMode.FORWARD, (call, commitment))[0] is None
    assert len(commitment.delivered["outputs", 0]) == len(commitment.done["outputs", 0])
    assert CallMode.DELIVER not in made.runner.happened


def test_a_candidate_that_is_not_timed_delivers_and_one_that_says_there_is_nothing_is_blamed(
    calls: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = calls()
    made.caller.baseline = replace(made.side)
    for _ in range(2):
        made.make(CallMode.FORWARD)
        assert CallMode.DELIVER in made.runner.happened
    made.caller.exclusive = True
    made.make(CallMode.FORWARD)
    assert CallMode.DELIVER not in made.runner.happened
    made.make(CallMode.BACKWARD)
    assert CallMode.DELIVER in made.runner.happened, "nothing was told of such calls"
    monkeypatch.setattr(Runner, "locations", lambda _runner, count: [Location(LocationKind.ABSENT)] * count)
    with pytest.raises(Violation, match="output 0 is not as it was"):
        made.make(CallMode.FORWARD)
    assert CallMode.DELIVER in made.runner.happened


def test_what_a_candidate_says_to_be_its_state_is_so_where_it_is_the_reference_s(calls: Callable[..., Calls]) -> None:
    for possible_state, mode in ((0, 0), (1, 1), (3, 1)):
        made = calls(kept=1)
        made.caller.baseline = replace(made.side, kept={})
        made.side.possible_state = possible_state
        made.caller.exclusive = True
        made.make(CallMode.FORWARD)
        assert made.side.kept == {CallMode.FORWARD: mode}
        made.make(CallMode.FORWARD)
        output = made.runner.computed[-1][0]
        assert output is not None
        assert bool(output.isnan().any()) is not bool(mode)


def test_a_gradient_that_is_said_to_be_there_and_is_not_is_asked_for(calls: Callable[..., Calls]) -> None:
    made = calls()
    made.make(CallMode.BACKWARD)
    commitments, names = made.caller.commitments, ["outputs", "input_gradients", "weight_gradients"]
    own, absent = made.runner.locations(2)[0], Location(LocationKind.ABSENT)
    assert commitments.are_there(names, [own, own], 3)
    assert commitments.are_there(names, [own, absent], 1)
    assert not commitments.are_there(names, [own, absent], 3)
    assert not commitments.are_there(names, [absent, own], 3)


@pytest.mark.parametrize("is_stale", [True, False])
def test_what_was_taken_from_an_allocation_of_an_earlier_call_is_read_anew_once_it_is_wrong(
    calls: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch, *, is_stale: bool
) -> None:
    """On a device, a handle may be that of memory that has been given back since: a call proves nothing then."""
    made = calls()
    made.make(CallMode.FORWARD)
    memory, read, whole = made.side.memory, ProcessMemory.read, ProcessMemory.take
    old = torch.full(made.runner.blocks["outputs"].tensors[0].shape, 3.0)
    stale = Location(LocationKind.PRIVATE, old.data_ptr(), old.stride())
    opened: dict[str, Any] = {"is_old": is_stale, "closed": []}
    monkeypatch.setattr(memory, "was_open", True, raising=False)
    monkeypatch.setattr(memory, "scrub", lambda *_: None)  # there, the runner does so
    monkeypatch.setattr(memory, "close", lambda: opened.update(is_old=False, closed=[*opened["closed"], True]))

    def place(at: Location) -> Location:
        return stale if opened["is_old"] else at

    monkeypatch.setattr(ProcessMemory, "read", lambda memory, at, *rest: read(memory, place(at), *rest))
    monkeypatch.setattr(ProcessMemory, "take", lambda memory, at, *rest: whole(memory, place(at), *rest))
    if not is_stale:
        made.runner.place = lambda value: value + 1
    call, commitment = made.make(CallMode.FORWARD)
    assert commitment.doubtful
    assert made.outcome(CallMode.FORWARD, (call, commitment))[0] is not None
    before, made.runner.happened = made.caller.remaps, []
    closed = len(opened["closed"])
    assert made.caller.has(made.side, commitment) is not is_stale
    assert before - made.caller.remaps == is_stale
    assert len(opened["closed"]) - closed == 1 + is_stale, "what was opened for this is old in the next call"
    assert made.runner.happened == [], "nobody is woken, who could learn that they were found out"
    made.caller.remaps = 0
    assert made.caller.has(made.side, commitment), "not for ever"


def test_rows_and_whole_tensors_are_read_and_written_wherever_they_lie() -> None:
    memory, rows = ProcessMemory(os.getpid()), torch.tensor([4, 0, 5])
    for dtype in (torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64, torch.uint16):
        plain = torch.arange(240).remainder(101).view(6, 10, 4).to(dtype)
        wide = torch.stack([plain, plain], -1)
        for tensor in (plain.clone(), plain.permute(2, 0, 1).contiguous().permute(1, 2, 0), wide[..., 0]):
            spec, location = TensorSpec.of(tensor), Location(LocationKind.PRIVATE, tensor.data_ptr(), tensor.stride())
            target = torch.zeros_like(plain)
            memory.take(location, spec, target)
            assert torch.equal(target, plain)
            assert torch.equal(memory.rows(location, spec, rows).view(torch.uint8), plain[rows].view(torch.uint8))
            memory.scrub(location, spec)
            has_nan = dtype.is_floating_point or dtype.is_complex
            assert bool(tensor.isnan().all()) if has_nan else bool((tensor.to(torch.int64) == 1).all())
        assert torch.equal(wide[..., 1], plain)


def test_what_lies_far_apart_is_neither_told_nor_touched() -> None:
    memory, locator = ProcessMemory(os.getpid()), Locator(torch.device("cpu"), readable=True)
    page = mmap.PAGESIZE
    file = mmap.mmap(-1, 64 * page)
    whole = torch.frombuffer(file, dtype=torch.float32)
    rows = whole.view(64, page // 4)[::4, :16]  # three pages of four are free of it
    rows.fill_(1.0)
    location, spec = Location(LocationKind.PRIVATE, rows.data_ptr(), rows.stride()), TensorSpec.of(rows)
    assert locator.locate(rows, torch.zeros(16, 16)) is not None
    before = _resident(whole)
    target = torch.zeros(16, 16)
    memory.take(location, spec, target)
    memory.scrub(location, spec)
    assert bool((target == 1).all())
    assert bool(rows.isnan().all())
    assert _resident(whole) == before == 16 * page
    column = torch.zeros(2**12, 2**9)[:, 0]
    assert locator.locate(column, torch.zeros(2**12)) is None
    with pytest.raises(Unreadable, match="far apart"):
        memory.take(
            Location(LocationKind.PRIVATE, column.data_ptr(), column.stride()),
            TensorSpec.of(column),
            torch.zeros(2**12, 2),
        )


def _resident(memory: torch.Tensor) -> int:
    """Bytes of a mapping that are in memory."""
    begin = f"{memory.data_ptr():x}-"
    lines = Path("/proc/self/smaps").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(begin))
    rss = next(line for line in lines[at:] if line.startswith("Rss:"))
    return int(rss.split()[1]) * 1024


@pytest.mark.parametrize("spread", [(5, 3, 4), (1, 7, 2), (4, 1, 1), (), (3,)])
def test_runs_have_every_element_where_it_belongs(spread: tuple[int, ...]) -> None:
    for gaps in product((1, 3, 600), repeat=len(spread)):
        if gaps.count(600) > 1:
            continue  # one of more than a page is enough, and takes megabytes
        strides: list[int] = []
        at = 1
        for size, gap in zip(reversed(spread), gaps, strict=True):
            strides.insert(0, at * gap)
            at *= gap * size
        elements = torch.arange(math.prod(spread)).view(spread)
        memory = torch.full((1 + sum((n - 1) * s for n, s in zip(spread, strides, strict=True)),), -1)
        memory.as_strided(spread, strides).copy_(elements)
        runs = Runs.of(spread, strides, 8)
        begins = torch.zeros(1, dtype=torch.int64)
        for size, stride in runs.outer:
            begins = (torch.arange(size)[:, None] * stride + begins).reshape(-1)
        packed = torch.cat([memory[begin : begin + runs.length] for begin in begins.tolist()])
        assert len(begins) == runs.count
        assert torch.equal(packed.as_strided(spread, runs.strides), elements)
