"""Records as text and tables for a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kerneljudge.cli import diagnosis_tables
from kerneljudge.records import (
    Board,
    FlagRecord,
    IntervalRecord,
    ProblemRecord,
    ProblemSummary,
    SubmissionRecord,
    Track,
)
from kerneljudge.summaries.summary import THRESHOLDS, Summary
from kerneljudge.terms.outcomes import Interval, SpeedupStatus, Verdict
from kerneljudge.terms.rules import Rules, rules_text
from kerneljudge.terms.vetting_labels import MEANING, Label

__all__ = ["indented", "leaderboard", "plain", "problem", "problem_list", "submission", "summary", "write"]

_DASH: Final = "\N{EN DASH}"
_UNMEASURED: Final = {
    SpeedupStatus.UNSETTLED: "none: the machine was too noisy to tell; measure it again",
    SpeedupStatus.NOT_VETTED: "none: the problem is not vetted, or vetting refuses it",
    SpeedupStatus.WEIGHTS_FIXED: "none: weights have to be as they were at first, see the notes",
}
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_PIPE_WIDTH: Final = 160
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STYLES: Final = {"done": "red", "failed": "yellow", "cancelled": "yellow"}


def plain(text: str) -> str:
    """Return ``text`` without terminal control characters. Much of the output was written by candidates."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def write(content: RenderableType) -> None:
    """Print on standard output, with enough width where it is not a terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    console.print(content, markup=False, highlight=False, soft_wrap=True)


def submission(record: SubmissionRecord) -> RenderableType:
    """Show the outcome first, then its reason, the figures and the hints."""
    outcome = record["verdict"] if record["verdict"] is not None else record["status"]
    style = "green" if record["verdict"] == "passed" else _STYLES.get(record["status"], "cyan")
    where = ", ".join(filter(None, [record["device"], record["size"], record["precision"]]))
    head = Text.assemble((outcome.replace("_", " "), f"bold {style}"), f"  {plain(record['problem'])} ({where})")
    parts: list[RenderableType] = [head]
    if record["message"]:
        parts.append(indented(record["message"]))
    parts.extend(Text(f"  {name:<17} {value}".rstrip()) for name, value in _figures(record).items())
    parts.extend(diagnosis_tables.tables(record["details"], plain))
    # A service from before diagnoses sends none.
    diagnosed = record.get("diagnosis")
    if diagnosed is not None:
        parts.append(diagnosis_tables.stored(diagnosed, plain))
    parts.extend(indented(f"note: {note}") for note in record["notes"])
    parts.extend(indented(f"hint: {hint}", "bold") for hint in record["hints"])
    # A service from before flags sends none.
    parts.extend(indented(_flag(flag), "dim") for flag in record.get("flags", ()))
    # A service from before feedback sends none.
    if record.get("feedback"):
        parts.append(Text("  feedback, as a language model is given it:", "dim"))
        parts.append(indented("\n".join(f"  {line}" for line in str(record["feedback"]).splitlines()), "dim"))
    return Group(*parts)


def leaderboard(board: Board) -> RenderableType:
    """Show a leaderboard as a table."""
    # A service from before shapes or vetting has no such field.
    shape = f"/{board['shape']}" if board.get("shape") else ""
    title = f"{board['problem']}, {board['track']}, {board['device']}, {board['size']}{shape}, {board['precision']}"
    refusal = board.get("refusal")
    if refusal:
        return Text(f"{title}: not ranked. {plain(refusal)}")
    if not board["entries"]:
        return Text(f"{title}: no entry yet")
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("#", "speedup", "95 % interval", "training", "latency", "baseline"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("gradients", "candidate", "author", "device", "submission"):
        table.add_column(column, overflow="fold")
    for entry in board["entries"]:
        cells = (
            str(entry["rank"]),
            _times(entry["speedup"]),
            _interval(entry["speedup_interval"]),
            _times(entry["speedup_training"]),
            _milliseconds(entry["latency_ms"]),
            _milliseconds(entry["baseline_ms"]),
            entry["gradients"],
            entry["label"] or _DASH,
            entry["author"] or _DASH,
            entry["device_name"] or entry["device"],
            entry["submission"],
        )
        table.add_row(*(Text(plain(cell)) for cell in cells))
    return table


def problem_list(problems: Sequence[ProblemSummary]) -> RenderableType:
    """Show all problems, one in a line."""
    table = Table(box=None, pad_edge=False)
    for column in ("problem", "title", "sizes", "precision", "KernelBench", "vetting"):
        table.add_column(column, overflow="fold")
    for record in problems:
        identity = record["kernelbench"]
        known_as = f"level {identity['level']} problem {identity['problem_id']}" if identity else _DASH
        sizes = ", ".join(record["sizes"])
        title = record["title"] + (" (private)" if record.get("visibility") == "private" else "")
        cells = (record["id"], title, sizes, record["dtype"], known_as, _in_short(record))
        table.add_row(*(Text(plain(cell)) for cell in cells))
    return table


def problem(record: ProblemRecord) -> RenderableType:
    """Show a problem with its reference."""
    facts = {
        name.replace("_", " "): str(record[name]) for name in ("version", "dtype", "gradient_policy", "input_domain")
    }
    for name, values in record["sizes"].items():
        facts[f"size {name}"] = ", ".join(f"{key}={value}" for key, value in values.items())
    # A service from before shapes sends none.
    for size, shapes in record.get("shapes", {}).items():
        for name, shape in shapes.items():
            differing = ", ".join(f"{key}={value}" for key, value in shape["values"].items())
            facts[f"shape {size}/{name}"] = f"{differing} ({shape['use']})"
        if record["held_out_shapes"][size]:
            facts[f"shapes of {size}"] = f"{record['held_out_shapes'][size]} more are held out"
    for precision, tolerance in record["tolerances"].items():
        facts[f"tolerance {precision}"] = f"atol {tolerance['atol']:g}, rtol {tolerance['rtol']:g}"
    if record.get("tf32"):
        facts["TF32"] = "in convolutions on a GPU, where the tolerance follows from its rounding"
    # A service from before rules sends none.
    if rules := record.get("rules"):
        facts["rules"] = rules_text(Rules.from_dict(rules))
    facts["vetting"] = _in_short(record)
    for label in record.get("labels") or ():
        facts[f"  {label.replace('_', ' ')}"] = MEANING[Label(label)] if label in set(Label) else ""
    if record.get("refusal"):
        facts["not ranked"] = str(record["refusal"])
    # A service from before problems of clients sends neither.
    if record.get("visibility") == "private":
        facts["visibility"] = "private"
    if len(record.get("versions", ())) > 1:
        facts["other versions"] = ", ".join(each for each in record["versions"] if each != record["version"])
    lines = [f"  {name:<20} {value}" for name, value in facts.items()]
    head = Text.assemble((record["id"], "bold"), f"  {record['title']}")
    return Group(
        head, indented(record["description"]), *map(Text, map(plain, lines)), Text(), Text(record["reference"])
    )


def summary(found: Summary) -> RenderableType:
    """Show the summary of many candidates: counts, rates for each level and tag, and pass@k."""
    overall = found.overall
    head = Text.assemble((f"{overall.correct} of {overall.candidates} passed", "bold"))
    head.append(f"  {overall.compiled} compiled, {overall.solved} of {overall.problems} problems solved")
    parts: list[RenderableType] = [head]
    if overall.ungraded:
        parts.append(indented(f"{overall.ungraded} were not graded", "yellow"))
    if overall.unsettled:
        parts.append(indented(f"{overall.unsettled} passed on too noisy a machine for a speedup", "yellow"))
    if overall.not_vetted:
        parts.append(indented(f"{overall.not_vetted} passed on problems that are not vetted or refused", "yellow"))
    if overall.weights_fixed:
        parts.append(indented(f"{overall.weights_fixed} passed with fixed weights, and have no speedup", "yellow"))
    if overall.untimed:
        parts.append(indented(f"{overall.untimed} passed without any timing, and count as no faster", "yellow"))
    for verdict, count in found.verdicts.items():
        parts.append(Text(f"  {verdict.replace('_', ' '):<17} {count}"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    table.add_column("")
    for column in ("problems", *(f"fast_{p:g}" for p in THRESHOLDS), "mean speedup", "of the best"):
        table.add_column(column, justify="right", no_wrap=True)
    groups = {"all": overall}
    groups |= {f"level {level}": figures for level, figures in found.by_level.items()}
    groups |= {f"tag {tag}": figures for tag, figures in found.by_tag.items()}
    for name, figures in groups.items():
        shares = (f"{100 * figures.fast_p[p]:.1f} %\n{_shares(figures.fast_p_interval.get(p))}" for p in THRESHOLDS)
        means = (_times(figures.geometric_mean), _times(figures.best_geometric_mean))
        table.add_row(Text(plain(name)), str(figures.problems), *shares, *means)
    parts.append(table)
    chances = [
        f"pass@{each.k} {100 * each.value:.1f} % {_shares(each.interval)}" for each in found.pass_at_k if each.p == 0
    ]
    if chances:
        parts.append(indented(", ".join(chances)))
    if overall.problems:
        parts.append(indented("in brackets: 95 % intervals, if problems and candidates were drawn anew", "dim"))
    return Group(*parts)


def _in_short(record: ProblemSummary) -> str:
    """Show the vetting results of a problem in short. A service from before vetting sends none."""
    labels, where = record.get("labels"), record.get("vetting")
    if labels is None:
        return "not vetted" if where is None else "not vetted since it was changed"
    found = ", ".join(labels) or "nothing found"
    return found if record["ranked"] else f"not ranked: {found}"


def _figures(record: SubmissionRecord) -> dict[str, str]:
    figures: dict[str, str] = {}
    if record["speedup"] is not None:
        figures["speedup"] = f"{_times(record['speedup'])} {_interval(record['speedup_interval'])}"
        if record["baseline"] != "eager":
            figures["speedup"] += f" over {record['baseline']}"
    # A service from before tiers sends none.
    if record["verdict"] == Verdict.PASSED and record.get("tier", "full") != "full":
        figures["tier"] = {"check": "check: nothing was timed", "quick": "quick: a rough speedup, which is not ranked"}[
            record["tier"]
        ]
    # A service from before this status sends none.
    for name, status in (("speedup", "speedup_status"), ("training speedup", "speedup_training_status")):
        if record.get(status) in _UNMEASURED:
            figures[name] = _UNMEASURED[SpeedupStatus(str(record.get(status)))]
    # A service from before warm figures sends none.
    if record.get("speedup_warm") is not None:
        figures["on warm caches"] = f"{_times(record['speedup_warm'])} {_interval(record['speedup_warm_interval'])}"
    if record["speedup_training"] is not None:
        interval = _interval(record["speedup_training_interval"])
        figures["training speedup"] = f"{_times(record['speedup_training'])} {interval}"
    if record["speedup_compiled"] is not None:
        interval = _interval(record.get("speedup_compiled_interval"))
        figures["over torch.compile"] = f"{_times(record['speedup_compiled'])} {interval}"
    figures |= _at_shapes(record)
    if record["gradients"] not in (None, "not_checked"):
        figures["gradients"] = str(record["gradients"]).replace("_", " ")
    tracks = record["details"].get("tracks", {})
    for name, track, latency in (
        ("latency", "inference", record["latency_ms"]),
        ("on warm caches", "inference_warm", record.get("latency_warm_ms")),
        ("with backward", "training", record["latency_training_ms"]),
    ):
        if latency is not None:
            sides = [
                _milliseconds(latency[side]) + _quartiles(tracks.get(track, {}).get(f"{side}_ms"))
                for side in ("candidate", "baseline")
            ]
            figures[f"{name} latency" if name.startswith("on") else name] = f"{sides[0]}, baseline {sides[1]}"
    parts = tracks.get("training", {})
    for name in ("forward", "backward"):
        if f"candidate_{name}_ms" in parts:
            sides = [_milliseconds(parts[f"{side}_{name}_ms"]["median_ms"]) for side in ("candidate", "baseline")]
            figures[f"of that {name}"] = f"{sides[0]}, baseline {sides[1]}"
    if record["roofline_share"] is not None:
        figures["share of roofline"] = _share(record["roofline_share"], record, "inference")
    errors = record["errors"]
    if errors["max_abs"] is not None:
        figures["largest error"] = f"{errors['max_abs']:.3g}"
    if errors["max_rel"] is not None:
        own = errors["reference_max_rel"]
        beside = "" if own is None else f", the reference's own {own:.3g}"
        figures["relative error"] = f"{errors['max_rel']:.3g}{beside}"
    memory = record["details"].get("memory")
    if memory is not None:
        sides = [_bytes(memory[f"{side}_peak_bytes"]) for side in ("candidate", "baseline")]
        figures["device memory"] = f"{sides[0]}, baseline {sides[1]}"
    if record["peak_memory_bytes"] is not None:
        figures["peak memory, all"] = _bytes(record["peak_memory_bytes"])
    if record["stage_s"]:
        figures["time"] = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in record["stage_s"].items())
    return figures


def _at_shapes(record: SubmissionRecord) -> dict[str, str]:
    """Show the speedups at timed shapes, and their means. A service from before shapes sends none."""
    shapes = record.get("shapes", {}).items()
    found = [
        *((f"at {name}", each["speedup"], each["speedup_interval"]) for name, each in shapes),
        *(
            (f"at {name}, training", each["speedup_training"], each["speedup_training_interval"])
            for name, each in shapes
        ),
        ("mean of shapes", record.get("speedup_mean"), record.get("speedup_mean_interval")),
        ("mean, training", record.get("speedup_training_mean"), record.get("speedup_training_mean_interval")),
    ]
    return {
        name: f"{_times(speedup)} {_interval(interval)}" for name, speedup, interval in found if speedup is not None
    }


def _quartiles(spread: dict[str, float] | None) -> str:
    return "" if spread is None else f" ({_milliseconds(spread['q1_ms'])} {_DASH} {_milliseconds(spread['q3_ms'])})"


def _share(share: float, record: SubmissionRecord, track: Track) -> str:
    # A service from before rooflines sends none.
    known = record.get("roofline", {}).get(track)
    under = "" if known is None else f" of a bound of {_milliseconds(known['bound_ms'])} by {known['limited_by']}"
    return f"{100 * share:.1f} %{under}"


def _flag(flag: FlagRecord) -> str:
    where = "" if flag["line"] is None else f", line {flag['line']}"
    return f"advisory: {flag['kind'].replace('_', ' ')}{where}: {flag['message']}"


def indented(text: str, style: str = "") -> Text:
    """Return lines that belong to the one above them, without control characters."""
    return Text("\n".join(f"  {line}" for line in plain(text).splitlines()), style)


def _times(value: float | None) -> str:
    return _DASH if value is None else f"{value:.2f}{_TIMES}"


def _interval(value: IntervalRecord | None) -> str:
    return "" if value is None else f"({value['low']:.2f} {_DASH} {value['high']:.2f})"


def _shares(interval: Interval | None) -> str:
    return "" if interval is None else f"({100 * interval.low:.0f} {_DASH} {100 * interval.high:.0f})"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return _DASH
    return f"{1000 * value:.1f} us" if value < 0.1 else f"{value:.4g} ms"


def _bytes(count: int) -> str:
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.4g} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")
