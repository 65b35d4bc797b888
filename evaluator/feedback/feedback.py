"""Feedback for a language model about its candidate: a short text, the same for the same evaluation. Torch-free.

It is made of the evaluation and the candidate's own source alone, whenever a record is made, and stored nowhere. It
says nothing that would help to pass without being right: no seed, no tolerance, and no limit that the judge applies to
a call. Expected values are shown only for the worst elements of outputs, on inputs as the problem's own ``get_inputs``
writes them.

Some results depend on data of the judge's own (sign-mixed inputs, say, or the gradient that backward is given). These
show the place of the error and the candidate's value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from evaluator.diagnosis.source_map import SourceMap
from evaluator.evaluation import Evaluation, Gradients, Interval, SpeedupStatus, Verdict
from evaluator.feedback.common_mistakes import likely_mistakes
from evaluator.feedback.weight_words import sentences_about

__all__ = ["MAX_CHARACTERS", "feedback"]

MAX_CHARACTERS: Final = 2_000

_MAX_SOURCE: Final = 50_000
"""The longest source that is searched, in characters: a caller waits meanwhile, and models write a tenth of it."""
_PUBLIC_INPUTS: Final = "as written"
_MAX_MESSAGE: Final = 900
_MAX_HINT: Final = 320
_MAX_NOTE: Final = 320
_MAX_WORST: Final = 4
_MAX_BREAKS: Final = 8
_MAX_HINTS: Final = 5
_TELLING_NOTES: Final = ("launch overhead", "local memory", "no counterpart of", "weights fixed at construction")
"""Notes about the candidate; the others are about the machine and the measurement."""
_CUT: Final = " […]"

_STAGES: Final = {
    Verdict.INVALID_SOURCE: "while reading the source",
    Verdict.LOAD_ERROR: "while importing the module",
    Verdict.COMPILE_ERROR: "while compiling the extension",
    Verdict.CONSTRUCT_ERROR: "while constructing ModelNew",
    Verdict.RUNTIME_ERROR: "while running forward or backward",
    Verdict.WRONG_SHAPE: "while comparing the outputs",
    Verdict.WRONG_DTYPE: "while comparing the outputs",
    Verdict.WRONG_OUTPUT: "while comparing the outputs",
    Verdict.WRONG_GRADIENT: "while comparing the gradients",
    Verdict.REJECTED: "while measuring: it broke a rule of measurement",
}
_BROKEN: Final = "before it was built: its source breaks a rule"
_GRADIENTS: Final = {
    Gradients.MATCH: "Gradients match.",
    Gradients.PARTIAL: "Gradients match as far as they could be compared: some weight has no counterpart.",
    Gradients.MISMATCH: "Gradients differ.",
    Gradients.MISSING: "Gradients are missing.",
}

_COMPARED: Final = re.compile(r"(?P<expected>, expected \S+) \(error \S+, allowed \S+\)")
_FIGURE: Final = re.compile(r"(?<!\d)\d++(?:\.\d+|(?= (?:of|times)\b))")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def feedback(evaluation: Evaluation, source: str) -> str:
    """Return at most ``MAX_CHARACTERS`` about ``evaluation``, for the author of ``source``.

    A source of more than 50,000 characters is not searched: lines and hints that come from it are left out.
    """
    source = source if len(source) <= _MAX_SOURCE else ""
    lines: list[str] = []
    left = MAX_CHARACTERS
    for line in _lines(evaluation, source):
        kept = _cut(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", line), left)
        if kept:
            lines.append(kept)
            left -= len(kept) + 1
    return "\n".join(lines)


def _lines(evaluation: Evaluation, source: str) -> Iterator[str]:
    """Yield the lines of the feedback, the most important first."""
    where = f"{evaluation.problem}, {evaluation.device}, size {evaluation.size}, {evaluation.precision}"
    broken = evaluation.details.get("broken_rules")
    stage = _BROKEN if broken else _STAGES.get(evaluation.verdict, "")
    yield f"Verdict: {evaluation.verdict.replace('_', ' ')}{f' {stage}' if stage else ''} ({where})."
    if evaluation.passed:
        yield from _figures(evaluation)
    else:
        yield from _failure(evaluation, source)
    hints = (*evaluation.hints, *likely_mistakes(evaluation, source))
    yield from (f"Hint: {_cut(hint, _MAX_HINT)}" for hint in hints[:_MAX_HINTS])
    for note in evaluation.notes:
        if any(sign in note for sign in _TELLING_NOTES):
            yield f"Note: {_cut(note, _MAX_NOTE)}"


def _failure(evaluation: Evaluation, source: str) -> Iterator[str]:
    if broken := evaluation.details.get("broken_rules"):
        yield from _broken_rules(broken, evaluation.details["rules"], source)
        return
    mismatch = evaluation.details.get("mismatch")
    if mismatch:
        if "shape" in evaluation.details:
            yield f"{evaluation.message.partition('): ')[0]}), and not at the size itself:"
        public = evaluation.verdict is Verdict.WRONG_OUTPUT and mismatch["inputs"] == _PUBLIC_INPUTS
        yield from _mismatch(mismatch, public=public)
        yield from (f"Weights: {sentence}." for sentence in sentences_about(evaluation.details.get("weights", {})))
        return
    message = _without_secrets(evaluation)
    shown = _cut(message, _MAX_MESSAGE)
    if shown:
        yield shown
    number, code = _own_line(message, source) or (0, "")
    if number and f"candidate.py, line {number}," not in shown:
        yield f"That is line {number} of your source: {code}"


def _broken_rules(broken: Sequence[Mapping[str, Any]], rules: Mapping[str, Any], source: str) -> Iterator[str]:
    """Yield the rules that applied, and each break with its line of ``source``."""
    given = (
        f"{name} {', '.join(value) if isinstance(value, list) else str(value).lower()}" for name, value in rules.items()
    )
    yield f"Rules: {'; '.join(given)}."
    places = SourceMap(source)
    for each in broken[:_MAX_BREAKS]:
        code = places.code_at(each["line"])
        yield f"{each['rule']}, line {each['line']}: {_cut(each['message'], _MAX_HINT)}{f': {code}' if code else ''}"


def _without_secrets(evaluation: Evaluation) -> str:
    """The message without figures that reveal a tolerance or a limit."""
    message = evaluation.message
    if evaluation.verdict is Verdict.REJECTED:
        return _FIGURE.sub("…", message)
    public = evaluation.verdict is Verdict.WRONG_OUTPUT and f"(inputs: {_PUBLIC_INPUTS})" in message
    return _COMPARED.sub(lambda match: match["expected"] if public else "", message)


def _own_line(message: str, source: str) -> tuple[int, str] | None:
    """The first line of the candidate's source that an error points to, as number and text."""
    places = SourceMap(source)
    line = places.named_by(message)
    if line is None or not places.code_at(line):
        return None
    return line, places.code_at(line)


def _mismatch(found: Mapping[str, Any], *, public: bool) -> Iterator[str]:
    total, wrong = found["total"], found["wrong"]
    shape = ", ".join(map(str, found["shape"]))
    odd = [f"{found[kind]} of them {name}" for kind, name in (("nan", "NaN"), ("infinite", "infinite")) if found[kind]]
    share = f" ({100 * wrong / total:.3g} %)" if total else ""
    yield (
        f"{found['tensor']}, {found['dtype']}[{shape}], inputs {found['inputs']}: "
        f"{', '.join([f'{wrong} of {total} elements are wrong{share}', *odd])}."
    )
    for pattern in found["patterns"]:
        yield f"Pattern: {pattern['sentence']}."
    worst = [_element(element, public=public) for element in found["worst"][:_MAX_WORST]]
    if worst:
        yield f"Worst elements: {'; '.join(worst)}."


def _element(element: Mapping[str, Any], *, public: bool) -> str:
    index = f"[{', '.join(map(str, element['index']))}]"
    expected = f", expected {_number(element['expected'])}" if public else ""
    return f"at {index} it is {_number(element['got'])}{expected}"


_UNMEASURED: Final = {
    SpeedupStatus.UNSETTLED: "there is none yet, for the machine was too noisy to tell. That says nothing about the "
    "candidate: it has to be measured again.",
    SpeedupStatus.NOT_VETTED: "there is none before the problem is vetted, nor where vetting refuses it. "
    "That says nothing about the candidate.",
}


def _figures(evaluation: Evaluation) -> Iterator[str]:
    for name, status in (
        ("Speedup of the forward", evaluation.speedup_status),
        ("Speedup of forward and backward", evaluation.speedup_training_status),
    ):
        if status in _UNMEASURED:
            yield f"{name}: {_UNMEASURED[status]}"
    over = "the eager reference" if evaluation.baseline == "eager" else f"the reference by {evaluation.baseline}"
    for name, speedup, interval, against in (
        ("Speedup of the forward", evaluation.speedup, evaluation.speedup_interval, over),
        (
            "Speedup of forward and backward",
            evaluation.speedup_training,
            evaluation.speedup_training_interval,
            over,
        ),
        (
            "Speedup of the forward",
            evaluation.speedup_compiled,
            evaluation.speedup_compiled_interval,
            "torch.compile",
        ),
    ):
        if speedup is not None:
            yield f"{name} over {against}: {speedup:.3g}{_interval(interval)}. {_meaning(speedup, interval)}"
    if evaluation.latency_ms is not None:
        latency = evaluation.latency_ms
        yield f"Forward latency: {latency.candidate:.4g} ms, the baseline's {latency.baseline:.4g} ms."
    inference = evaluation.roofline.get("inference")
    if evaluation.roofline_share is not None:
        of = "" if inference is None else f" of {inference.bound_ms:.4g} ms, which {inference.limited_by} sets"
        yield f"That is {100 * evaluation.roofline_share:.3g} % of the speed at the roofline bound{of}."
    if evaluation.gradients in _GRADIENTS:
        yield _GRADIENTS[evaluation.gradients]


def _meaning(speedup: float, interval: Interval | None) -> str:
    low, high = (speedup, speedup) if interval is None else (interval.low, interval.high)
    if low > 1.0:
        return "It is faster."
    return "It is slower." if high < 1.0 else "No difference could be told."


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f" ({100 * interval.level:.0f} % interval {interval.low:.3g} to {interval.high:.3g})"


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _cut(text: str, most: int) -> str:
    """Cut ``text`` to at most ``most`` characters."""
    if len(text) <= most:
        return text
    return text[: most - len(_CUT)].rstrip() + _CUT if most > len(_CUT) else ""
