"""The shapes of a size, judged one after the other once a candidate has passed at the size itself. Torch-free.

Each shape has a session of its own, with new processes and new models. Checked and held-out shapes come first: they
have fewer trials and no timing. The first shape that is not passed decides the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from evaluator.config import EvalConfig, SamplingPlan
from evaluator.errors import EvaluationCancelled, EvaluatorError
from evaluator.evaluation import Evaluation, Gradients, Interval, TrackFigures, Verdict
from evaluator.problems.problem import Problem
from evaluator.problems.shapes import ANOTHER_VALUE, Shape, full_name
from evaluator.progress import Callbacks, Progress
from evaluator.task import EvaluationTask

__all__ = ["at_shapes", "geometric_mean"]

_TRIALS: Final = 2
_GRADIENT_TRIALS: Final = 1
"""Trials at a shape that is checked. The values of inputs were tried at the size itself: a new extent shows in any."""
_TROUBLE: Final[Mapping[Verdict, str]] = {
    Verdict.WRONG_OUTPUT: "its output is wrong",
    Verdict.WRONG_GRADIENT: "a gradient is wrong or missing",
    Verdict.WRONG_SHAPE: "its output has a wrong shape",
    Verdict.WRONG_DTYPE: "its output has a wrong dtype",
    Verdict.RUNTIME_ERROR: "it fails",
    Verdict.TIMEOUT: "it takes too long",
    Verdict.OUT_OF_MEMORY: "it runs out of memory",
    Verdict.CONSTRUCT_ERROR: "it cannot be constructed",
    Verdict.COMPILE_ERROR: "an extension cannot be compiled",
    Verdict.LOAD_ERROR: "it cannot be loaded",
    Verdict.REJECTED: "it breaks a rule",
}

_HIDDEN_ERROR: Final = "it cannot be judged there; with another use than held_out, the message has the reason"
_EXTENTS: Final = "It passes at the size itself: read extents from the inputs, and treat their remainders."
_SWITCHES: Final = "It passes at the size itself: look at strides and other properties of the inputs."
_OF_THE_SOURCE: Final = frozenset({"builds", "kernels", "rules", "compile_cache"})
"""Details that are the same at each shape."""
_WORSE: Final = (
    Gradients.NOT_APPLICABLE,
    Gradients.MATCH,
    Gradients.PARTIAL,
    Gradients.NOT_CHECKED,
    Gradients.MISSING,
    Gradients.MISMATCH,
)
"""Findings about gradients, each worse than those before it."""

EvaluateTask = Callable[[EvaluationTask, Callbacks], Evaluation]


def at_shapes(evaluation: Evaluation, task: EvaluationTask, callbacks: Callbacks, evaluate: EvaluateTask) -> Evaluation:
    """Return the verdict over the size, where ``evaluation`` is known, and all of its shapes.

    ``evaluate`` judges one task. Its errors are raised, and say at which shape.
    """
    problem, config = task.problem, task.config
    shapes = problem.shapes_of(config.size)
    if not shapes or not evaluation.passed or config.given_inputs_only:
        return evaluation
    passed: dict[str, Evaluation] = {}
    total_s = 0.0
    for number, name in enumerate(_in_order(shapes), 1):
        shape = shapes[name]
        label = f"{number} of {len(shapes)}" + ("" if shape.use == "held_out" else f", {name}")
        its_task = replace(task, config=_config(config, name, shape))
        try:
            found = evaluate(its_task, Callbacks(_labelled(callbacks, label), callbacks.cancelled))
        except EvaluationCancelled:
            raise
        except EvaluatorError as error:
            # The text of an error may quote the shape, or come from the candidate.
            text = _HIDDEN_ERROR if shape.use == "held_out" else str(error)
            raise type(error)(f"at shape {label}: {text}") from error
        total_s += found.stage_s["total"]
        if not found.passed:
            return _with_time(_failed(evaluation, found, problem, config.size, name), evaluation, total_s)
        passed[name] = found
    return _with_time(_passed(evaluation, shapes, passed), evaluation, total_s)


def geometric_mean(figures: Sequence[tuple[float, Interval]]) -> tuple[float, Interval]:
    """Return the geometric mean of independent figures above 0, and its interval.

    The logarithm of the mean is the mean of logarithms. Half the width of its interval is the root of the sum of the
    squared half widths, divided by their number, as for a mean of independent normal variables.
    """
    center = math.fsum(math.log(figure) for figure, _ in figures) / len(figures)
    halves = [(math.log(interval.high) - math.log(interval.low)) / 2 for _, interval in figures]
    half = math.sqrt(math.fsum(each * each for each in halves)) / len(figures)
    return math.exp(center), Interval(math.exp(center - half), math.exp(center + half), figures[0][1].level)


def _in_order(shapes: Mapping[str, Shape]) -> list[str]:
    """Return the names, those of the cheaper uses first."""
    return sorted(shapes, key=lambda name: shapes[name].use == "timed")


def _config(config: EvalConfig, name: str, shape: Shape) -> EvalConfig:
    plan = config.sampling
    if shape.use != "timed":
        trials, gradient_trials = min(plan.trials, _TRIALS), min(plan.gradient_trials, _GRADIENT_TRIALS)
        plan = SamplingPlan(trials, gradient_trials, max_samples=0, warm_samples=0)
    return replace(config, size=full_name(config.size, name), sampling=plan, compare_compiled=False)


def _labelled(callbacks: Callbacks, label: str) -> Callable[[Progress], None]:
    def report(step: Progress) -> None:
        callbacks.progress(Progress("shapes", f"shape {label}: {step.stage}", step.share))

    return report


def _failed(evaluation: Evaluation, found: Evaluation, problem: Problem, size: str, name: str) -> Evaluation:
    shape = problem.shapes_of(size)[name]
    if shape.use == "held_out":
        # Texts of this session may quote the shape, even the candidate's own output. None of them goes on.
        trouble = problem.trouble_of(size, name)
        details = {name: value for name, value in evaluation.details.items() if name in _OF_THE_SOURCE}
        if "device_fault" in found.details:
            details["device_fault"] = found.details["device_fault"]
        return replace(
            evaluation,
            **vars(TrackFigures()),
            verdict=found.verdict,
            message=f"at a held-out shape with {', '.join(trouble)}: {_TROUBLE.get(found.verdict, 'it fails')}",
            gradients=found.gradients,
            notes=(),
            hints=(_EXTENTS if ANOTHER_VALUE not in trouble else _SWITCHES,),
            details=details,
            samples={},
        )
    values = ", ".join(f"{each} = {value}" for each, value in shape.values.items())
    details = {**found.details, "shape": name}
    return replace(found, size=size, message=f"at the shape {name} ({values}): {found.message}", details=details)


def _passed(evaluation: Evaluation, shapes: Mapping[str, Shape], passed: Mapping[str, Evaluation]) -> Evaluation:
    timed = {name: found for name, found in passed.items() if shapes[name].use == "timed"}
    samples = {f"{track}/{name}": series for name, found in timed.items() for track, series in found.samples.items()}
    whole = replace(
        evaluation,
        **_mean("speedup", [evaluation, *timed.values()]),
        **_mean("speedup_training", [evaluation, *timed.values()]),
        shapes={name: _figures(found) for name, found in timed.items()},
        samples={**evaluation.samples, **samples},
        notes=(
            *evaluation.notes,
            *(f"at the shape {name}: {note}" for name, found in timed.items() for note in found.notes),
            _note(shapes),
        ),
    )
    worst = max(passed, key=lambda name: _WORSE.index(passed[name].gradients))
    gradients = passed[worst].gradients
    if _WORSE.index(gradients) > _WORSE.index(evaluation.gradients):
        place = "a held-out shape" if shapes[worst].use == "held_out" else f"the shape {worst}"
        note = f"gradients are {gradients} at {place}, so there is no training track"
        return _without_training(replace(whole, notes=(*whole.notes, note), gradients=gradients))
    return whole if evaluation.gradients is Gradients.MATCH else _without_training(whole)


def _figures(found: Evaluation) -> TrackFigures:
    return TrackFigures(**{each.name: getattr(found, each.name) for each in fields(TrackFigures)})


def _mean(figure: str, timed: Sequence[Evaluation]) -> dict[str, Any]:
    """Return the geometric mean over the size and its timed shapes; nothing where a figure is missing."""
    figures = [(getattr(each, figure), getattr(each, f"{figure}_interval")) for each in timed]
    known = [(value, interval) for value, interval in figures if value is not None and interval is not None]
    if len(known) != len(timed) or len(timed) == 1:
        return {}
    value, interval = geometric_mean(known)
    return {f"{figure}_mean": value, f"{figure}_mean_interval": interval}


def _note(shapes: Mapping[str, Shape]) -> str:
    shown = [name for name, shape in shapes.items() if shape.use != "held_out"]
    hidden = len(shapes) - len(shown)
    parts = [f"{'the shape' if len(shown) == 1 else 'the shapes'} {', '.join(shown)}"] if shown else []
    parts += [f"{hidden} held-out {'shape' if hidden == 1 else 'shapes'}"] if hidden else []
    return f"it passes at {' and '.join(parts)} as well"


def _without_training(evaluation: Evaluation) -> Evaluation:
    """Return the record without figures of training, which has a track only where gradients match at each shape."""
    tracks = evaluation.details.get("tracks", {})
    return replace(
        evaluation,
        **_no_training(evaluation),
        shapes={name: replace(each, **_no_training(each)) for name, each in evaluation.shapes.items()},
        samples={name: series for name, series in evaluation.samples.items() if not _is_training(name)},
        notes=tuple(note for note in evaluation.notes if not note.startswith("training: ")),
        details={
            **{name: value for name, value in evaluation.details.items() if name != "tracks"},
            **({"tracks": {name: each for name, each in tracks.items() if not _is_training(name)}} if tracks else {}),
        },
    )


def _is_training(track: str) -> bool:
    return track.partition("/")[0] == "training"


def _no_training(figures: TrackFigures) -> dict[str, Any]:
    roofline = {track: each for track, each in figures.roofline.items() if track != "training"}
    return {"roofline": roofline, **{each.name: None for each in fields(TrackFigures) if "training" in each.name}}


def _with_time(evaluation: Evaluation, first: Evaluation, shapes_s: float) -> Evaluation:
    """Return the record with the seconds of the size's evaluation, and those of its shapes."""
    total_s = first.stage_s["total"] + shapes_s
    own = {name: seconds for name, seconds in first.stage_s.items() if name != "total"}
    return replace(evaluation, stage_s={**own, "shapes": shapes_s, "total": total_s})
