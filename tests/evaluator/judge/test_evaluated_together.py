"""Several candidates evaluated together: who passes, who is evaluated alone, and that nobody decides about another."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, Limits, SamplingPlan
from evaluator.engine import Callbacks, Engine, Progress
from evaluator.errors import (
    DeviceUnavailable,
    DoesNotFit,
    EvaluationCancelled,
    EvaluatorError,
    InfrastructureFault,
    ProblemError,
)
from evaluator.evaluation import Evaluation, Gradients, SpeedupStatus, Verdict
from evaluator.problems.problem import Problem
from evaluator.processes import runner_pool
from evaluator.sandbox.client import ForkServer, RunnerProcess
from evaluator.stages.evaluation_stage import EvaluationStage
from evaluator.task import EvaluationTask
from tests.corpus import load_case
from tests.processes import Process, descendants
from tests.settled import settled_together

_QUICK = SamplingPlan(min_samples=6, max_samples=6, warm_samples=0, settles=False)
_CONFIG = EvalConfig(device="cpu", size="smoke", sampling=_QUICK)
_WITH_FIGURES = replace(_CONFIG, sampling=replace(_QUICK, settles=True))
_PLAIN = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
_SLOWER = _PLAIN.replace("return", "__import__('time').sleep(0.02)\n        return")
_CLAMPS = _PLAIN.replace("torch.relu(x)", "x.clamp_min(0)")
_WRONG = _PLAIN.replace("torch.relu(x)", "torch.nn.functional.leaky_relu(x)")
_NO_GRAPH = _PLAIN.replace("torch.relu(x)", "torch.relu(x.detach())")
_ENDS = _PLAIN.replace("return torch.relu(x)", "__import__('os')._exit(3)")
_LINEAR = "from model import Model\nclass ModelNew(Model):\n    pass\n"
_DRAWS = _LINEAR.replace(
    "pass", "def __init__(self, *arguments):\n        __import__('torch').rand(3)\n        super().__init__(*arguments)"
)

Done = Evaluation | EvaluatorError


pytestmark = pytest.mark.usefixtures("without_chance")


def _candidate(source: str) -> Candidate:
    candidate = parse_candidate(code=source)
    assert isinstance(candidate, Candidate), candidate
    return candidate


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that does on a CPU what it does on CUDA: figures are not as good, but nothing else depends on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner_pool, "_KEEPS_BASELINES_ON", {"cpu"})
        patch.setattr(runner_pool, "_FORKS_BESIDE", {"cpu"})
        with Engine(device="cpu", cache_dir=tmp_path_factory.mktemp("cache")) as engine:
            yield engine


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many candidates each session had, in order."""
    evaluate, counts = EvaluationStage._evaluate, list[int]()

    def counting(
        self: EvaluationStage, tasks: Sequence[EvaluationTask], callbacks: Sequence[Callbacks]
    ) -> list[tuple[Evaluation, str] | None]:
        counts.append(len(tasks))
        return evaluate(self, tasks, callbacks)

    monkeypatch.setattr(EvaluationStage, "_evaluate", counting)
    return counts


def _together(
    engine: Engine,
    problem: Problem,
    *sources: str,
    config: EvalConfig = _CONFIG,
    progress: Callable[[int, Progress], None] = lambda _index, _step: None,
    cancelled: Callable[[int], bool] = lambda _index: False,
) -> dict[int, Done]:
    """What came of each, in the order in which it was known; of the first without a result, the fault of all."""
    found: dict[int, Done] = {}
    callbacks = [Callbacks(partial(progress, index), partial(cancelled, index)) for index in range(len(sources))]
    try:
        for index, result in engine.evaluate_group(problem, list(map(_candidate, sources)), config, callbacks):
            assert index not in found
            found[index] = result
    except InfrastructureFault as fault:
        found[min(set(range(len(sources))) - set(found))] = fault
    return found


def _evaluation(result: Done) -> Evaluation:
    assert isinstance(result, Evaluation), result
    return result


def test_weights_that_move_for_one_are_as_before_for_the_others(
    engine: Engine, problems: dict[str, Problem], sessions: list[int]
) -> None:
    keeps, by_version = (load_case(name).source for name in ("attack_d_weight_turned_once", "honest_weight_by_version"))
    found = _together(engine, problems["gemm_bias_gelu"], keeps, _LINEAR, by_version)
    assert sessions == [3]
    evaluations = [_evaluation(found[place]) for place in range(3)]
    assert [each.verdict for each in evaluations] == [Verdict.PASSED] * 3, [each.message for each in evaluations]
    assert [each.gradients for each in evaluations] == [Gradients.MATCH] * 3
    fixed = [each.speedup_training_status is SpeedupStatus.WEIGHTS_FIXED for each in evaluations]
    assert fixed == [True, False, False]
    assert evaluations[0].details["parameters"]["kept"] == ["linear.weight", "linear.bias"]
    assert evaluations[0].speedup_status is not SpeedupStatus.WEIGHTS_FIXED


def test_each_has_figures_of_its_own_against_calls_of_one_baseline(
    engine: Engine, problems: dict[str, Problem], sessions: list[int]
) -> None:
    stages: dict[int, list[str]] = {0: [], 1: [], 2: []}
    found = settled_together(
        lambda: _together(
            engine,
            problems["relu"],
            _PLAIN,
            _SLOWER,
            _CLAMPS,
            config=_WITH_FIGURES,
            progress=lambda index, step: stages[index].append(step.stage),
        )
    )
    assert set(sessions) == {3}
    evaluations = [_evaluation(found[index]) for index in range(3)]
    for evaluation in evaluations:
        assert evaluation.verdict is Verdict.PASSED, evaluation.message
        assert evaluation.gradients is Gradients.MATCH
        assert evaluation.details["together"] == 3
        assert evaluation.speedup_interval is not None
        assert evaluation.roofline_share is not None
        assert evaluation.peak_memory_bytes is None
        assert {"preparing", "loading", "constructing", "verifying", "sampling", "total"} == set(evaluation.stage_s)
        assert Evaluation.from_dict(evaluation.to_dict()) == evaluation
    plain, slower, _ = evaluations
    assert plain.latency_ms is not None
    assert slower.latency_ms is not None
    assert slower.latency_ms.candidate > 1.5 * plain.latency_ms.candidate
    for track in ("inference", "training"):
        # Who is looked at more closely goes on with other rounds.
        rounds = [set(evaluation.samples[track].baseline_device_ms) for evaluation in evaluations]
        shared = [one & other for one, other in itertools.combinations(rounds, 2)]
        assert max(map(len, shared)) >= 3, "the baseline is called once in a round, for all of them"
        assert set(plain.samples[track].order) == {"candidate first", "baseline first"}
    for seen in stages.values():
        assert {"preparing", "loading", "constructing", "verifying", "sampling"} <= set(seen)


def test_what_does_not_pass_is_evaluated_alone_and_the_others_are_not(
    engine: Engine, problems: dict[str, Problem], sessions: list[int]
) -> None:
    found = _together(engine, problems["relu"], _WRONG, _PLAIN, "1/0\n" + _PLAIN, _CLAMPS)
    assert sessions == [4, 1, 1]
    assert list(found) == [1, 3, 0, 2], "what is known is told at once"
    verdicts = {index: _evaluation(result).verdict for index, result in found.items()}
    assert verdicts == {
        0: Verdict.WRONG_OUTPUT,
        1: Verdict.PASSED,
        2: Verdict.LOAD_ERROR,
        3: Verdict.PASSED,
    }
    assert [_evaluation(found[index]).details.get("together") for index in range(4)] == [None, 4, None, 4]
    assert "ZeroDivisionError" in _evaluation(found[2]).message


def test_who_has_no_gradients_has_no_training_and_the_others_have(
    engine: Engine, problems: dict[str, Problem], sessions: list[int]
) -> None:
    found = settled_together(lambda: _together(engine, problems["relu"], _NO_GRAPH, _PLAIN, config=_WITH_FIGURES))
    assert set(sessions) == {2}
    without, honest = _evaluation(found[0]), _evaluation(found[1])
    assert (without.verdict, without.gradients, without.speedup_training) == (Verdict.PASSED, Gradients.MISSING, None)
    assert (honest.verdict, honest.gradients) == (Verdict.PASSED, Gradients.MATCH)
    assert honest.speedup_training is not None
    assert without.speedup is not None


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        (_ENDS, Verdict.RUNTIME_ERROR),
        (_PLAIN.replace("return", "__import__('time').sleep(600)\n        return"), Verdict.TIMEOUT),
        # Right while it is only verified: in a group, too, it is found out while it is timed.
        (
            _PLAIN.replace("def forward", "calls = 0\n    def forward").replace(
                "return torch.relu(x)", "self.calls += 1\n        return torch.relu(x) if self.calls < 11 else x"
            ),
            Verdict.WRONG_OUTPUT,
        ),
    ],
)
def test_who_may_have_disturbed_the_others_ends_it_for_all_of_them(
    source: str, verdict: Verdict, engine: Engine, problems: dict[str, Problem], sessions: list[int]
) -> None:
    limits = Limits(call_s=5, late_build_s=1)
    found = _together(engine, problems["relu"], _PLAIN, source, config=replace(_CONFIG, limits=limits))
    honest, other = _evaluation(found[0]), _evaluation(found[1])
    assert other.verdict is verdict, other.message
    assert "together" not in other.details
    assert honest.verdict is Verdict.PASSED
    if verdict is Verdict.WRONG_OUTPUT:
        assert sessions == [2, 1]
        assert honest.details["together"] == 2
    else:
        assert sessions == [2, 1, 1]
        assert "together" not in honest.details


def test_weights_are_the_same_for_all(engine: Engine, problems: dict[str, Problem], sessions: list[int]) -> None:
    found = _together(engine, problems["linear_relu_divide"], _LINEAR, _DRAWS)
    assert sessions == [2]
    for result in found.values():
        evaluation = _evaluation(result)
        assert (evaluation.verdict, evaluation.gradients) == (Verdict.PASSED, Gradients.MATCH), evaluation.message
    assert any("the reference's were loaded" in note for note in _evaluation(found[1]).notes)


@pytest.mark.usefixtures("chance")
def test_of_whom_time_was_put_back_is_evaluated_alone(
    engine: Engine, problems: dict[str, Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, counts = EvaluationStage._evaluate, list[int]()

    def doubtful(
        self: EvaluationStage, tasks: Sequence[EvaluationTask], callbacks: Sequence[Callbacks]
    ) -> list[tuple[Evaluation, str] | None]:
        found = evaluate(self, tasks, callbacks)
        counts.append(len(tasks))
        doubts = ["time was put back: inference", ""] if len(found) == 2 else [""]
        return [first and (first[0], doubt) for first, doubt in zip(found, doubts, strict=True)]

    monkeypatch.setattr(EvaluationStage, "_evaluate", doubtful)
    found = _together(engine, problems["relu"], _PLAIN, _CLAMPS)
    assert counts == [2, 1]
    assert list(found) == [1, 0]
    assert any("evaluated twice" in note for note in _evaluation(found[0]).notes)
    assert "together" not in _evaluation(found[0]).details


def test_one_that_is_cancelled_has_no_evaluation_and_the_others_have(
    engine: Engine, problems: dict[str, Problem], sessions: list[int]
) -> None:
    found = _together(engine, problems["relu"], _PLAIN, _CLAMPS, cancelled=lambda index: index == 0)
    assert isinstance(found[0], EvaluationCancelled)
    assert _evaluation(found[1]).verdict is Verdict.PASSED
    assert sessions == [2]


def test_once_all_are_cancelled_it_ends_soon(engine: Engine, problems: dict[str, Problem], sessions: list[int]) -> None:
    seen: list[str] = []
    found = _together(
        engine,
        problems["relu"],
        _PLAIN,
        _CLAMPS,
        progress=lambda _index, step: seen.append(step.stage),
        cancelled=lambda _index: "verifying" in seen,
    )
    assert "sampling" not in seen
    assert all(isinstance(result, EvaluationCancelled) for result in found.values())
    assert len(found) == 2
    assert sessions == [2]
    assert _evaluation(_together(engine, problems["relu"], _PLAIN)[0]).verdict is Verdict.PASSED


def test_a_fault_of_ours_is_told_of_one_and_the_rest_is_left(
    engine: Engine, problems: dict[str, Problem], sessions: list[int]
) -> None:
    def kill(_index: int, step: Progress) -> None:
        if step.stage == "verifying" and "judge" in engine.process_ids:
            os.kill(engine.process_ids["judge"], signal.SIGKILL)

    found = _together(engine, problems["relu"], _PLAIN, _CLAMPS, progress=kill)
    assert sessions == [2]
    assert list(found) == [0]
    assert isinstance(found[0], InfrastructureFault)
    found = _together(engine, problems["relu"], _WRONG, _CLAMPS, progress=lambda *_: len(sessions) == 3 and kill(*_))
    assert sessions == [2, 2, 1]
    assert list(found) == [1, 0]
    assert isinstance(found[0], InfrastructureFault)


def test_where_there_is_no_room_for_all_each_is_evaluated_alone(
    engine: Engine, problems: dict[str, Problem], sessions: list[int]
) -> None:
    roomy = replace(_CONFIG, limits=Limits(device_memory_bytes=2**36))
    wanted = _evaluation(_together(engine, problems["relu"], _PLAIN, config=roomy)[0]).details["memory_plan"]
    # For one candidate and its baseline; three have two processes more, and as many more that wait.
    limits = Limits(device_memory_bytes=int(float(wanted.split()[0]) * 2**30) + 2**28)
    config = replace(_CONFIG, limits=limits)
    for again in (False, True):
        sessions.clear()
        found = _together(engine, problems["relu"], *[_PLAIN] * 3, config=config)
        assert [_evaluation(result).verdict for result in found.values()] == [Verdict.PASSED] * 3
        assert sessions == [*([] if again else [3]), 1, 1, 1], "what does not fit is remembered"
        assert engine.max_group_size(problems["relu"], config) == 1


def test_a_setting_that_is_refused_is_refused_for_each(engine: Engine, problems: dict[str, Problem]) -> None:
    found = _together(engine, problems["relu"], _PLAIN, _CLAMPS, config=replace(_CONFIG, baseline="tf32"))
    assert [type(result) for result in found.values()] == [ProblemError, ProblemError]


def test_processes_for_as_many_wait_for_the_next_and_one_alone_takes_one(
    engine: Engine, problems: dict[str, Problem]
) -> None:
    _together(engine, problems["relu"], _PLAIN, _CLAMPS, _SLOWER)
    waiting = _waiting(engine)
    assert set(waiting) == {"candidate", "candidate 2", "candidate 3", "baseline"}
    assert "kept baseline" in engine.process_ids
    assert engine.evaluate(problems["relu"], _candidate(_PLAIN), _CONFIG).verdict is Verdict.PASSED
    after = _waiting(engine)
    assert set(after) == set(waiting)
    assert len(set(after.values()) & set(waiting.values())) == 3, "two candidates' and the baseline's are the same"
    again = _together(engine, problems["relu"], _PLAIN, _CLAMPS, _SLOWER)
    assert all(_evaluation(result).verdict is Verdict.PASSED for result in again.values())
    assert not set(_waiting(engine).values()) & (set(after.values()) - {after["baseline"]})


def _runners(engine: Engine) -> set[Process]:
    """What the fork server has made, with all that belongs to it."""
    return set(descendants(engine.process_ids["forkserver"]))


def _waiting(engine: Engine) -> dict[str, int]:
    roles = engine.process_ids
    return {role: pid for role, pid in roles.items() if role.startswith("candidate") or role == "baseline"}


def test_how_many_go_together_depends_on_the_settings(
    engine: Engine, problems: dict[str, Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    relu = problems["relu"]
    assert engine.max_group_size(relu, _CONFIG) == 4
    assert engine.max_group_size(relu, replace(_CONFIG, baseline="compile")) == 1
    assert engine.max_group_size(relu, replace(_CONFIG, compare_compiled=True)) == 1
    assert engine.max_group_size(relu, replace(_CONFIG, sampling=SamplingPlan(max_samples=0))) == 1
    monkeypatch.setattr(runner_pool, "_KEEPS_BASELINES_ON", {"cuda"})
    assert engine.max_group_size(relu, _CONFIG) == 1, "who has worked for a while is faster there"


def test_an_engine_without_a_device_evaluates_nobody(tmp_path: Path, problems: dict[str, Problem]) -> None:
    with Engine(device=None, cache_dir=tmp_path) as engine, pytest.raises(DeviceUnavailable):
        _together(engine, problems["relu"], _PLAIN, _CLAMPS)


def test_one_alone_has_the_room_of_those_that_wait_for_more(
    engine: Engine, problems: dict[str, Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    _together(engine, problems["relu"], _PLAIN, _CLAMPS, _SLOWER)
    evaluate, waited = EvaluationStage._evaluate, list[int]()

    def refusing(self: EvaluationStage, *arguments: Any) -> list[tuple[Evaluation, list[str]] | None]:
        waited.append(len(_waiting(engine)))
        if waited[-1] > 2:
            self._pool.end_waiting()  # as it does with all that an evaluation has taken when it is refused
            raise DoesNotFit("not with so many processes there")
        return evaluate(self, *arguments)

    monkeypatch.setattr(EvaluationStage, "_evaluate", refusing)
    assert engine.evaluate(problems["relu"], _candidate(_PLAIN), _CONFIG).verdict is Verdict.PASSED
    assert waited == [4, 0]


def test_what_is_cancelled_while_its_processes_get_ready_leaves_none(
    engine: Engine, problems: dict[str, Problem]
) -> None:
    engine._pool.leave_device()
    before = _runners(engine)
    with pytest.raises(EvaluationCancelled) as caught:
        engine.evaluate(problems["relu"], _candidate(_PLAIN), _CONFIG, Callbacks(cancelled=lambda: True))
    assert _runners(engine) <= before, "though the error that is kept knows of them"
    assert caught.value
    _together(engine, problems["relu"], _PLAIN)
    there = _runners(engine)
    found = _together(engine, problems["relu"], _PLAIN, _CLAMPS, _SLOWER, cancelled=lambda _index: True)
    assert all(isinstance(result, EvaluationCancelled) for result in found.values())
    assert _runners(engine) <= there


def test_among_others_nobody_has_more_time_than_alone(
    engine: Engine, problems: dict[str, Problem], sessions: list[int]
) -> None:
    limits = Limits(load_s=2, build_s=1)
    late = "__import__('time').sleep(2.5)\n" + _PLAIN
    later = "__import__('time').sleep(4.5)\n" + _PLAIN
    found = _together(engine, problems["relu"], late, later, config=replace(_CONFIG, limits=limits))
    assert [_evaluation(found[index]).verdict for index in (0, 1)] == [Verdict.PASSED, Verdict.TIMEOUT]
    assert sessions == [2, 1, 1]


@pytest.mark.parametrize("when", ["match_weights", "load_weights"])
def test_nobody_overwrites_the_weights_that_others_are_shown(
    when: str, engine: Engine, problems: dict[str, Problem], sessions: list[int]
) -> None:
    overwrites = (
        "import evaluator.runner.calls as calls\n"
        "match = calls.match_weights\n"
        "def overwriting(model, state):\n"
        "    found = match(model, state)\n"
        "    for tensor in state.values:\n"
        "        tensor.zero_()\n"
        "    return found\n"
        "calls.match_weights = overwriting\n" + _LINEAR
    )
    honest = _LINEAR if when == "match_weights" else _DRAWS
    problem = problems["linear_relu_divide"]
    found = settled_together(lambda: _together(engine, problem, overwrites, honest, config=_WITH_FIGURES))
    evaluation = _evaluation(found[1])
    assert (evaluation.verdict, evaluation.gradients) == (Verdict.PASSED, Gradients.MATCH), evaluation.message
    assert evaluation.speedup_training is not None
    assert sessions[0] == 2


def test_who_ends_it_for_all_is_not_waited_for(
    engine: Engine, problems: dict[str, Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    poll = ForkServer.poll

    def noting(self: ForkServer, runner: RunnerProcess, wait_s: float = 0.0) -> int | None:
        waits.append(wait_s)
        return poll(self, runner, wait_s)

    monkeypatch.setattr(ForkServer, "poll", noting)
    found = _together(engine, problems["relu"], _PLAIN, _ENDS, _CLAMPS, cancelled=lambda index: index == 1)
    assert [_evaluation(found[index]).verdict for index in (0, 2)] == [Verdict.PASSED] * 2
    assert isinstance(found[1], EvaluationCancelled)
    assert max(waits) == 0, "the others stand still, and end only when they are killed"


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("problem", ["linear_relu_divide", "gelu", "relu"])
def test_identical_models_are_no_faster_together(
    problem: str, cuda_engine: Engine, problems: dict[str, Problem], sessions: list[int], *, has_room: bool
) -> None:
    config = EvalConfig(device="cuda", size="full")
    count = cuda_engine.max_group_size(problems[problem], config)
    for number in range(2):
        sessions.clear()
        found = _together(cuda_engine, problems[problem], *[_LINEAR] * count, config=config)
        if has_room or problem != "relu":
            assert sessions[0] == 4
        else:  # tried once, unless another test has
            assert set(sessions[1:] if number == 0 and count > 1 else sessions) == {1}
        for result in found.values():
            evaluation = _evaluation(result)
            assert (evaluation.verdict, evaluation.gradients) == (Verdict.PASSED, Gradients.MATCH), evaluation.message
            seen = number, evaluation.notes, evaluation.details["tracks"]
            assert evaluation.speedup == pytest.approx(1.0, abs=0.02), seen
            assert evaluation.speedup_training == pytest.approx(1.0, abs=0.02), seen


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [
        "attack_a_cuda_persisting_l2",
        "attack_a_cuda_resident_single",
        "bomb_cuda_illegal_address",
    ],
)
def test_an_attack_among_others_gains_nothing_and_harms_nobody(
    name: str, cuda_engine: Engine, problems: dict[str, Problem]
) -> None:
    case = load_case(name)
    found = _together(cuda_engine, problems[case.problem], _LINEAR, case.source, _LINEAR, config=case.config("cuda"))
    assert not case.complaints(_evaluation(found[1]))
    for index in (0, 2):
        honest = _evaluation(found[index])
        assert (honest.verdict, honest.gradients) == (Verdict.PASSED, Gradients.MATCH), honest.message
        assert honest.speedup_interval is not None
        assert honest.speedup_interval.low <= 1.05
        assert honest.speedup_interval.high >= 0.95
