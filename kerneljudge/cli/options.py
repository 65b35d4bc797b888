"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kerneljudge.cli.output import BadUsage
from kerneljudge.terms.choices import BASELINES, PRECISIONS, TIERS
from kerneljudge.terms.limits import SETTABLE_LIMITS
from kerneljudge.terms.rules import LANGUAGES

__all__ = [
    "AsJson",
    "AsResponse",
    "Author",
    "Baseline",
    "File",
    "OptionalUrl",
    "Precision",
    "ProblemId",
    "ProblemsDir",
    "ReferenceFile",
    "RequireGradients",
    "RequireSandbox",
    "RulesOption",
    "Size",
    "TierOption",
    "Url",
    "Visibility",
    "one_of_problem_and_reference",
]

File = Annotated[str, typer.Argument(help="Source that defines ModelNew, or a model's answer; - is standard input.")]
ProblemId = Annotated[
    str | None,
    typer.Option("--problem", "-p", help="The problem's id, see kerneljudge problems list; or give --reference."),
]
ReferenceFile = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="FILE",
        help="A reference in KernelBench's form, in place of a problem: Model, get_inputs.",
    ),
]
AsResponse = Annotated[
    bool, typer.Option("--response", help="FILE is a raw model answer (as .md and .txt files always are).")
]
Author = Annotated[str | None, typer.Option(help="The name on the leaderboard.")]
Size = Annotated[
    str | None, typer.Option(help="smoke, full, or another size of the problem. Default: full on cuda, smoke on cpu.")
]
Precision = Annotated[str | None, typer.Option(help=f"{', '.join(PRECISIONS)}. Default: the problem's own.")]
RequireGradients = Annotated[
    bool | None,
    typer.Option(
        "--require-gradients/--no-require-gradients",
        help="Whether missing gradients fail. Default: the problem's policy.",
        show_default=False,
    ),
]
Baseline = Annotated[
    str,
    typer.Option(
        help=f"What the speedup divides by: {', '.join(BASELINES)}. The last three are for problems that allow them."
    ),
]
LimitsOption = Annotated[
    str,
    typer.Option(
        "--limits",
        help=f"Limits of this evaluation, as call_s=300,total_s=3600; there are {', '.join(SETTABLE_LIMITS)}. "
        "Default: those of the problem, then of KERNELJUDGE_LIMITS.",
        show_default=False,
    ),
]
LowerLimits = Annotated[
    str,
    typer.Option(
        "--limits",
        help=f"Less time than the service has, as call_s=5,total_s=60; there are {', '.join(SETTABLE_LIMITS)}.",
        show_default=False,
    ),
]
TierOption = Annotated[
    str,
    typer.Option(
        "--tier",
        help=f"{', '.join(TIERS)}: the verdict alone without timing, a rough speedup, or the one that is ranked.",
    ),
]
RulesOption = Annotated[
    str,
    typer.Option(
        "--rules",
        help="Rules about the source besides the problem's, as languages=cuda+triton,forbidden_operators=matmul,"
        f"no_lower_precision=true; languages are {', '.join(LANGUAGES)}. A broken rule is the verdict rejected.",
        show_default=False,
    ),
]
Visibility = Annotated[
    str | None,
    typer.Option(
        help="The part that others see: public, source_hidden or private. The latter two need a key "
        "(KERNELJUDGE_API_KEY). Default: public."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, and nothing else.")]
Url = Annotated[str, typer.Option(envvar="KERNELJUDGE_URL", help="The address of the service.")]
ProblemsDir = Annotated[
    Path | None, typer.Option(help="Folder of problems. Default: KERNELJUDGE_PROBLEMS_DIR, then reference_models.")
]
RequireSandbox = Annotated[
    bool | None,
    typer.Option(
        "--require-sandbox/--no-require-sandbox",
        envvar="KERNELJUDGE_REQUIRE_SANDBOX",
        help="Whether to refuse where a layer of the sandbox is missing. Default: no, but say so.",
        show_default=False,
    ),
]
OptionalUrl = Annotated[
    str | None,
    typer.Option(envvar="KERNELJUDGE_URL", help="Ask this service. Default: the folder of problems on this machine."),
]


def one_of_problem_and_reference(problem: str | None, reference: str | None) -> None:
    """Raise ``BadUsage`` unless exactly one of them is given."""
    if (problem is None) == (reference is None):
        raise BadUsage("give either --problem, an id, or --reference, a file")
