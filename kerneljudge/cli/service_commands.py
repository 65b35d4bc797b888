"""The commands that hand in candidates and read leaderboards, mostly through a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kerneljudge.cli import comparison_table, follow, render, service
from kerneljudge.cli.options import (
    AsJson,
    AsResponse,
    Author,
    Baseline,
    File,
    LowerLimits,
    Precision,
    ProblemId,
    ProblemsDir,
    ReferenceFile,
    RequireGradients,
    RequireSandbox,
    RulesOption,
    Size,
    TierOption,
    Url,
    Visibility,
    one_of_problem_and_reference,
)
from kerneljudge.cli.output import BadUsage, as_error, emit, finish, say, turned_into_exits
from kerneljudge.client import DEFAULT_URL
from kerneljudge.grading.local_record import failed_record
from kerneljudge.grading.options import GradingOptions
from kerneljudge.grading.references import read_reference
from kerneljudge.grading.sources import read_given
from kerneljudge.requests import SubmissionOptions
from kerneljudge.terms.outcomes import Status

__all__ = ["batches_app", "grade", "leaderboard", "submit"]

batches_app = typer.Typer(
    no_args_is_help=True,
    help="Batches of a service.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def submit(
    file: File,
    problem: ProblemId = None,
    reference: ReferenceFile = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow it until it is graded.")] = False,
    diagnosed: Annotated[
        bool, typer.Option("--diagnosis", help="With --watch: after a device fault, until it is diagnosed as well.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: the service decides.")] = None,
    size: Size = None,
    precision: Precision = None,
    require_gradients: RequireGradients = None,
    baseline: Baseline = "eager",
    limits: LowerLimits = "",
    tier: TierOption = "full",
    rules: RulesOption = "",
    response: AsResponse = False,
    label: Annotated[str | None, typer.Option(help="Your name for it. Default: the file's name.")] = None,
    author: Author = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object of yours to keep beside it.")] = None,
    parent: Annotated[str | None, typer.Option(help="The id of the submission that it was derived from.")] = None,
    device_name: Annotated[
        str | None, typer.Option(help='Evaluate it on devices of this name alone: "NVIDIA H200".')
    ] = None,
    visibility: Visibility = None,
    url: Url = DEFAULT_URL,
    json_: AsJson = False,
) -> None:
    """Submit a candidate to a service."""
    known: dict[str, str | None] = {"device": device, "size": size, "precision": precision, "tier": tier}

    def as_record(message: str) -> None:
        if json_:
            emit(failed_record(problem or "", message, **known))

    options = GradingOptions(
        device, size, precision, require_gradients, baseline, limits, tier, rules, author, visibility
    )
    with turned_into_exits(as_record), service.connect(url) as client:
        one_of_problem_and_reference(problem, reference)
        own = None if reference is None else read_reference(reference)
        given = read_given(file, is_response=response)
        wanted: SubmissionOptions = {
            **options.to_request(),
            "label": given.name if label is None else label,
            "metadata": None if metadata is None else _object(metadata),
            "parent": parent,
            "requirements": None if device_name is None else {"device_name": device_name},
        }
        record = client.submit(problem, reference=own, code=given.code, response=given.response, **wanted)
        known.update(id=record["id"])
        if watch and not Status(record["status"]).final:
            record = follow.watch(client, record)
            if diagnosed:
                record = follow.watch_diagnosis(client, record)
        if Status(record["status"]).final:
            finish(record, as_json=json_)
        if json_:
            emit(record)
        else:
            typer.echo(record["id"])
            say(f"handed in; follow it at {client.url}{record['links']['page']}")
            if record["message"]:
                say(record["message"])


def grade(
    given: Annotated[
        Path,
        typer.Argument(metavar="INPUT", help="JSONL, Parquet, a folder of .py files, or of a KernelBench run."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="The file for results: .jsonl, .csv or .parquet. Lines that it holds already are not graded."
        ),
    ],
    problem: Annotated[str | None, typer.Option("--problem", "-p", help="The problem of all that name none.")] = None,
    code_field: Annotated[str, typer.Option(help="Field of a line that holds source; a.b.0 is a path.")] = "code",
    response_field: Annotated[
        str, typer.Option(help="Field that holds a raw model answer, or a conversation.")
    ] = "response",
    problem_field: Annotated[str, typer.Option(help="Field of a line that names its problem.")] = "problem",
    key_field: Annotated[str | None, typer.Option(help="Field that tells lines apart. Default: their numbers.")] = None,
    metadata_field: Annotated[str | None, typer.Option(help="Field of a line that holds an object to keep.")] = None,
    parent_field: Annotated[
        str | None, typer.Option(help="Field that holds the id of the submission that a line was derived from.")
    ] = None,
    reference_field: Annotated[
        str | None,
        typer.Option(help="Field of a line that holds a reference in place of a problem: its source, or an object."),
    ] = None,
    eval_results: Annotated[Path | None, typer.Option(help="Also write KernelBench's eval_results.json here.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: cuda where there is one, else cpu.")] = None,
    size: Size = None,
    precision: Precision = None,
    require_gradients: RequireGradients = None,
    baseline: Baseline = "eager",
    limits: LowerLimits = "",
    tier: TierOption = "full",
    rules: RulesOption = "",
    author: Author = None,
    visibility: Visibility = None,
    url: Annotated[
        str | None,
        typer.Option(envvar="KERNELJUDGE_URL", help=f"The service. Default: {DEFAULT_URL}, or else this machine."),
    ] = None,
    here: Annotated[bool, typer.Option("--local", help="On this machine, even where a service answers.")] = False,
    problems_dir: ProblemsDir = None,
    require_sandbox: RequireSandbox = None,
    json_: AsJson = False,
) -> None:
    """Grade many candidates, through a service or on this machine. An interrupted run continues where it stopped.

    Exit status: 0 all passed, 1 some did not, 2 bad usage or refused lines, 3 some could not be graded.
    """
    from kerneljudge.grading.grade import Fields, grade_all

    with turned_into_exits(as_error(json_)):
        fields = Fields(
            code=code_field,
            response=response_field,
            problem=problem_field,
            key=key_field,
            metadata=metadata_field,
            parent=parent_field,
            reference=reference_field,
        )
        options = GradingOptions(
            device, size, precision, require_gradients, baseline, limits, tier, rules, author, visibility
        )
        raise typer.Exit(
            grade_all(
                given,
                out,
                fields,
                options,
                problem=problem,
                eval_results=eval_results,
                service=None if here else service.reachable(url),
                problems_dir=problems_dir,
                require_sandbox=bool(require_sandbox),
                as_json=json_,
            )
        )


def leaderboard(
    problem: Annotated[str | None, typer.Argument(help="The problem's id. Default: every problem.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: the service decides.")] = None,
    track: Annotated[str, typer.Option(help="inference, or training (forward and backward).")] = "inference",
    size: Size = None,
    shape: Annotated[
        str | None, typer.Option(help="A timed shape of the size; * is the mean of the size and these.")
    ] = None,
    precision: Precision = None,
    device_name: Annotated[str | None, typer.Option(help="Only results from devices of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 20,
    url: Url = DEFAULT_URL,
    json_: AsJson = False,
) -> None:
    """Show the leaderboard of one problem, or of every problem."""
    with turned_into_exits(as_error(json_)), service.connect(url) as client:
        wanted = [problem] if problem is not None else [record["id"] for record in client.problems()]
        boards = [
            client.leaderboard(
                name,
                device=device,
                track=track,
                size=size,
                shape=shape,
                precision=precision,
                device_name=device_name,
                limit=limit,
            )
            for name in wanted
        ]
        if json_:
            emit(boards[0] if problem is not None else {"boards": boards})
            return
        for board in boards:
            render.write(render.leaderboard(board))


@batches_app.command("compare")
def compare_batches(
    batch: Annotated[str, typer.Argument(help="The batch's id.")],
    other: Annotated[str, typer.Argument(help="The id of the batch that is subtracted.")],
    url: Url = DEFAULT_URL,
    json_: AsJson = False,
) -> None:
    """Compare two batches on the problems that both have: differences of fast_p and pass@k, with intervals."""
    with turned_into_exits(as_error(json_)), service.connect(url) as client:
        found = client.compare_batches(batch, other)
        if json_:
            emit(found)
        else:
            render.write(comparison_table.comparison(found, render.plain))


def _object(text: str) -> dict[str, Any]:
    """Return the JSON object in ``text``. Raises ``BadUsage``."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadUsage(f"--metadata is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadUsage("--metadata must be a JSON object")
    return found
