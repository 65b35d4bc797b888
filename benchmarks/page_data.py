"""A database like that of a service after a busy year, with a given number of submissions, in a minute or two.

All data are drawn from one seed, so that two databases of the same size are alike. Rows are copied in with the schema
from before leaderboards had tables of their own. Bringing the schema up to date then fills those tables, as it does for
a service that is upgraded.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from alembic import command
from sqlalchemy import Engine

from evaluator.evaluation import Evaluation, Gradients, Interval, Latency, SampleSeries, Verdict
from evaluator.problems.loading import load_problems
from evaluator.problems.problem import Problem
from evaluator.roofline import Roofline
from runtime.settings import Settings
from storage.database import alembic_config, create_engine_for, migrate, session_factory
from storage.problems import sync_problems

__all__ = ["POPULAR", "fill"]

POPULAR: Final = "relu"
"""The problem of a third of all submissions."""

_SCHEMA: Final = "0003"
_SEED: Final = 20_260_101
_BEGIN: Final = datetime(2026, 1, 5, tzinfo=UTC)
_SPAN: Final = timedelta(days=300)
_SOURCES: Final = 5000
_AT_ONCE: Final = 10_000
_KNOWN: Final = 90
_BATCH_LINES: Final = 1000
_DEVICES: Final = (
    ("cuda", "NVIDIA H100 80GB HBM3", 0.55),
    ("cuda", "NVIDIA H200", 0.25),
    ("cpu", "AMD EPYC 9654", 0.2),
)
_VERDICTS: Final = {
    Verdict.PASSED: 0.42, Verdict.COMPILE_ERROR: 0.2, Verdict.WRONG_OUTPUT: 0.13, Verdict.RUNTIME_ERROR: 0.09,
    Verdict.LOAD_ERROR: 0.06, Verdict.INVALID_SOURCE: 0.04, Verdict.WRONG_GRADIENT: 0.02, Verdict.TIMEOUT: 0.015,
    Verdict.OUT_OF_MEMORY: 0.01, Verdict.WRONG_SHAPE: 0.01, Verdict.REJECTED: 0.005,
}  # fmt: skip
_MESSAGES: Final = {
    Verdict.COMPILE_ERROR: 'cuda.cu:14: identifier "blockDimx" is undefined',
    Verdict.WRONG_OUTPUT: "the output: 12 of 4096 elements are wrong; only the last rows",
    Verdict.RUNTIME_ERROR: "CUDA error in kernel fused_kernel: illegal memory access",
    Verdict.LOAD_ERROR: "TypeError: load_inline() got an unexpected keyword argument 'extra_cuda_flags'",
    Verdict.INVALID_SOURCE: "no class ModelNew at the top level",
}
_FAMILIES: Final = (
    "falcon-coder", "kestrel-70b", "osprey-mini", "merlin-rl", "harrier-2", "kite-32b", "buzzard", "eagle-owl",
)  # fmt: skip
_PEOPLE: Final = (
    "ada", "bruno", "chiara", "dmitri", "emi", "farid", "grace", "hugo", "ines", "jun", "kofi", "lena", "marek",
    "noor", "olga", "pavel", "quynh", "rosa", "samir", "tove", "uma", "viktor", "wanda", "xavi", "yuki", "zeno",
)  # fmt: skip
_LABELS: Final = (
    "float4 loads", "vectorised", "fused epilogue", "warp shuffle", "two rows a block", "grid-stride", "shared tile",
    "async copy", "one pass", "persistent blocks", "unrolled", "baseline port", "template sizes", "bank swizzle",
)  # fmt: skip
_COLUMNS: Final = {
    "problems": ("id", "version", "definition", "current", "created_at"),
    "sources": ("digest", "text", "created_at"),
    "submissions": (
        "id", "problem", "problem_version", "source_digest", "origin", "device", "size", "precision", "baseline",
        "label", "author", "content_digest", "status", "stage", "message", "attempts", "faults", "bells", "build_log",
        "submitted_at", "built_at", "started_at", "finished_at",
    ),
    "evaluations": (
        "id", "submission_id", "verdict", "gradients", "device", "device_name", "speedup", "speedup_training",
        "created_at", "record", "samples", "log",
    ),
    "batches": ("id", "name", "items", "errors", "last_place", "message", "created_at", "heard_at", "received_at",
                "finished_at"),
    "batch_items": ("batch_id", "line", "label", "submission_id", "shared", "cancelled", "place", "finished_at"),
}  # fmt: skip


@dataclass(frozen=True)
class _Author:
    name: str | None
    skill: float


def fill(settings: Settings, rows: int, problems_dir: Path) -> str:
    """Create the database of ``settings`` with ``rows`` submissions. Return the id of a batch of some of them."""
    problems = load_problems(problems_dir)
    engine = create_engine_for(settings)
    with engine.begin() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, _SCHEMA)
    known = [(each.id, each.version, json.dumps(each.to_dict()), True, _BEGIN) for each in problems.values()]
    _copy(engine, "problems", known)
    chance = random.Random(_SEED)  # noqa: S311 - the same data every time
    authors = _authors(chance, rows)
    sources = [(f"{number:064x}", _source(number), _BEGIN) for number in range(_SOURCES)]
    _copy(engine, "sources", sources)
    batch = "bat_benchmark"
    lines: list[tuple[Any, ...]] = []
    for start in range(0, rows, _AT_ONCE):
        submissions, evaluations = [], []
        for number in range(start, min(start + _AT_ONCE, rows)):
            submission, evaluation = _rows_of(chance, number, rows, list(problems.values()), authors)
            submissions.append(submission)
            evaluations.append(evaluation)
            if len(lines) < _BATCH_LINES:
                place = len(lines) + 1
                lines.append((batch, place, f"sample {place}", submission[0], False, False, place, submission[-1]))
        _copy(engine, "submissions", submissions)
        _copy(engine, "evaluations", evaluations)
    _copy(engine, "batches", [(batch, "falcon-coder, step 1200", len(lines), 0, len(lines), "", *(_BEGIN,) * 4)])
    _copy(engine, "batch_items", lines)
    migrate(settings)
    with session_factory(engine).begin() as session:
        sync_problems(session, problems)  # with their vettings, which the old schema cannot have
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
    engine.dispose()
    return batch


def _authors(chance: random.Random, rows: int) -> list[_Author]:
    """Return a hundred authors that hand in most submissions, and one for each thousand submissions."""
    names: list[str | None] = [
        *_PEOPLE,
        *(f"{family} r{number}" for family in _FAMILIES for number in range(1, 9)),
        None,
    ]
    names += [f"visitor {number}" for number in range(rows // 1000)]
    return [_Author(name, chance.gauss(0.1, 0.35)) for name in names]


def _rows_of(
    chance: random.Random, number: int, rows: int, problems: Sequence[Problem], authors: Sequence[_Author]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    identity = f"{number:022d}"
    popular = chance.random() < 1 / 3
    problem = next(each for each in problems if each.id == POPULAR) if popular else chance.choice(problems)
    device, device_name, _ = chance.choices(_DEVICES, [share for *_, share in _DEVICES])[0]
    known = min(_KNOWN, len(authors))
    author = authors[int(known * chance.random() ** 1.5)] if chance.random() < 0.9 else chance.choice(authors)
    age = number / rows
    begin = _BEGIN + _SPAN * age
    end = begin + timedelta(seconds=20 + 40 * chance.random())
    label = chance.choice(_LABELS)
    digest = f"{chance.randrange(_SOURCES):064x}"
    evaluation = _evaluation(chance, problem, device, device_name, author, age)
    message = evaluation.message
    submission = (
        f"sub_{identity}", problem.id, problem.version, digest, "code", device, evaluation.size, problem.dtype, "eager",
        label, author.name, hashlib.sha256(identity.encode()).hexdigest(), "done", "evaluate", message, 1, 0, 1, "",
        begin, begin + timedelta(seconds=8), begin + timedelta(seconds=10), end,
    )  # fmt: skip
    record = evaluation.to_dict()
    samples, log = record.pop("samples"), record.pop("log")
    stored = (
        f"evl_{identity}", f"sub_{identity}", str(evaluation.verdict), str(evaluation.gradients), device, device_name,
        evaluation.speedup, evaluation.speedup_training, end, json.dumps(record), json.dumps(samples), log,
    )  # fmt: skip
    return submission, stored


def _evaluation(
    chance: random.Random, problem: Problem, device: str, device_name: str, author: _Author, age: float
) -> Evaluation:
    verdict = chance.choices(list(_VERDICTS), list(_VERDICTS.values()))[0]
    common: dict[str, Any] = {
        "problem": problem.id, "problem_version": problem.version, "device": device,
        "size": problem.default_size(device), "precision": problem.dtype,
        "environment": {"device_name": device_name, "torch": "2.11.0", "cuda": "13.0", "driver": "580.65"},
        "stage_s": {"building": 7.1, "preparing": 0.6, "verifying": 1.9, "sampling": 3.2, "total": 13.0},
    }  # fmt: skip
    if verdict is not Verdict.PASSED:
        return Evaluation(verdict=verdict, message=_MESSAGES.get(verdict, str(verdict)), **common)
    # People learn, so later results are better. They have an upper limit.
    most = 1.1 + 0.25 * (int(hashlib.sha256(problem.id.encode()).hexdigest(), 16) % 24)
    speedup = min(
        math.exp(author.skill + 0.7 * age - 0.35 + chance.gauss(0, 0.35)), most * (1 - 0.4 * chance.random() ** 0.6)
    )
    half = speedup * chance.uniform(0.004, 0.03)
    baseline_ms = 0.2 + (int(hashlib.sha256(problem.id.encode()).hexdigest(), 16) % 97) / 16
    latency = Latency(baseline_ms / speedup, baseline_ms, baseline_ms / speedup + 0.02, baseline_ms + 0.02)
    gradients = chance.choices([Gradients.MATCH, Gradients.MISSING, Gradients.PARTIAL], [0.5, 0.45, 0.05])[0]
    training = speedup * chance.uniform(0.6, 1.05) if gradients is Gradients.MATCH else None
    bound_ms = baseline_ms / most
    roofline = Roofline(
        bound_ms=bound_ms, limited_by="memory", share=bound_ms * speedup / baseline_ms, memory_ms=bound_ms,
        compute_ms=bound_ms / 5, intensity=4.0, bytes=2**28, operations=2**30, bytes_per_s=2.9e12,
        operations_per_s=6.1e13,
    )  # fmt: skip
    return Evaluation(
        verdict=verdict,
        message="",
        gradients=gradients,
        speedup=speedup,
        speedup_interval=Interval(speedup - half, speedup + half),
        speedup_training=training,
        speedup_training_interval=None if training is None else Interval(training - half, training + half),
        speedup_compiled=speedup * chance.uniform(0.55, 0.9),
        latency_ms=latency,
        latency_training_ms=None
        if training is None
        else Latency(2 * baseline_ms / training, 2 * baseline_ms, 0.0, 0.0),
        roofline_share=roofline.share,
        roofline={"inference": roofline},
        samples={"inference": SampleSeries((latency.candidate,), (latency.baseline,), (1.0,), (1.0,), ("ab",))},
        **common,
    )


def _source(number: int) -> str:
    return (
        f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * {number}\n"
    )


def _copy(engine: Engine, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    columns = _COLUMNS[table]
    names = ", ".join(columns)
    with engine.begin() as connection:
        raw: Any = connection.connection.dbapi_connection
        cursor = raw.cursor()
        if engine.dialect.name == "postgresql":
            with cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        else:
            marks = ", ".join("?" * len(columns))
            cursor.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", _for_sqlite(rows))  # noqa: S608 - names are ours


def _for_sqlite(rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        yield tuple(_moment(value) if isinstance(value, datetime) else value for value in row)


def _moment(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat(" ", timespec="microseconds")
