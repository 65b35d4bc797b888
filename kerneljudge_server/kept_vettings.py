"""Vettings on this machine: a problem is vetted once, before the figures of its first candidate count."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from evaluator.config import EvalConfig
from evaluator.evaluation import Evaluation
from evaluator.problems.loading import save_vetting
from evaluator.problems.problem import Problem
from evaluator.problems.vetting import Vetting, refusal_of, without_figures
from evaluator.progress import Progress
from kerneljudge.cli.output import BadUsage
from kerneljudge_server.folders import cache_dir

if TYPE_CHECKING:
    from evaluator.problems.vetting.run import Judge

__all__ = ["vetted", "write_vetting"]


def vetted(
    engine: Judge,
    problem: Problem,
    config: EvalConfig,
    evaluation: Evaluation,
    progress: Callable[[Progress], None],
) -> Evaluation:
    """Return ``evaluation`` with its figures where vetting accepts the problem, and without them where it does not.

    A problem that was not vetted for the precision and the kind of device is vetted now, once for this machine. Raises
    the engine's errors.
    """
    if not evaluation.passed:  # there are no figures
        return evaluation
    known = problem.vettings_at(config.precision) or _kept_vetting(problem, config)
    if not known:
        from evaluator.problems.vetting.run import vet as vet_one  # noqa: PLC0415 - few commands need it

        def report(check: str, number: int, most: int) -> None:
            progress(Progress("vetting", f"the problem: {check}", number / most))

        size = problem.vetting_size
        vetting = vet_one(problem, engine, config.device, size, report, precision=config.precision)
        _keep_vetting(problem, config, vetting)
        known = (vetting,)
    refusal = refusal_of(known)
    return evaluation if refusal is None else without_figures(evaluation, refusal)


def _vetting_file(problem: Problem, config: EvalConfig) -> Path:
    name = f"{problem.id}-{problem.version}-{config.precision}-{config.device_kind}.json"
    return cache_dir() / "vettings" / name


def _kept_vetting(problem: Problem, config: EvalConfig) -> tuple[Vetting, ...]:
    """Return the vetting of an earlier evaluation on this machine; empty where it cannot be read."""
    try:
        vetting = Vetting.from_dict(json.loads(_vetting_file(problem, config).read_text(encoding="utf-8")))
    except (OSError, KeyError, TypeError, ValueError):
        return ()
    same = (vetting.version, vetting.precision, vetting.device)
    return (vetting,) if same == (problem.version, config.precision, config.device_kind) else ()


def _keep_vetting(problem: Problem, config: EvalConfig, vetting: Vetting) -> None:
    path = _vetting_file(problem, config)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The file is replaced as a whole, because other processes may read it meanwhile.
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(vetting.to_dict()), encoding="utf-8")
    partial.replace(path)


def write_vetting(folder: Path, vetting: Vetting) -> Path:
    """Write ``vetting`` into its problem's ``folder``, and return the file. Raises ``BadUsage`` where it cannot."""
    try:
        return save_vetting(folder, vetting)
    except OSError as error:
        raise BadUsage(f"cannot write to {folder}: {error.strerror}") from error
