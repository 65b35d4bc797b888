"""``kerneljudge problems``: list, show, vet and import problems, and create them at a service."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer

from kerneljudge.cli import render, service
from kerneljudge.cli.options import AsJson, OptionalUrl, ProblemsDir, RequireSandbox, Size, Url
from kerneljudge.cli.output import BadUsage, ExitStatus, as_error, emit, say, stderr, turned_into_exits
from kerneljudge.cli.progress import ProgressLine
from kerneljudge.cli.server_part import need_server
from kerneljudge.client import DEFAULT_URL
from kerneljudge.grading.sources import read_given
from kerneljudge.records import ProblemRecord
from kerneljudge.requests import NewProblem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["problems_app"]

problems_app = typer.Typer(
    no_args_is_help=True,
    help="The problems that can be graded.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


_HERE = "a folder of problems on this machine"
_ASK = "--url asks a service for its problems"

ProblemFiles = Annotated[
    Path,
    typer.Argument(metavar="PATH", help="A folder with reference.py and problem.toml, or a file of KernelBench."),
]
CreatedId = Annotated[str, typer.Argument(help="The problem's id.")]


@problems_app.command("list")
def list_problems(url: OptionalUrl = None, problems_dir: ProblemsDir = None, json_: AsJson = False) -> None:
    """List all problems, one in a line."""
    with turned_into_exits(as_error(json_)):
        if url is not None and problems_dir is None:
            with service.connect(url) as client:
                records = client.problems()
        else:
            need_server(_HERE, _ASK)
            from kerneljudge_server.problems import known_problems, problem_record

            records = [problem_record(task) for task in known_problems(problems_dir).values()]
        if json_:
            emit({"items": records})
        else:
            render.write(render.problem_list(records))


@problems_app.command("show")
def show_problem(
    problem: Annotated[str, typer.Argument(help="The problem's id.")],
    url: OptionalUrl = None,
    problems_dir: ProblemsDir = None,
    json_: AsJson = False,
) -> None:
    """Show one problem with its sizes, tolerances and reference."""
    with turned_into_exits(as_error(json_)):
        if url is not None and problems_dir is None:
            with service.connect(url) as client:
                record = client.problem(problem)
        else:
            need_server(_HERE, _ASK)
            from kerneljudge_server.problems import known_problem, problem_record

            record = problem_record(known_problem(problems_dir, problem))
        if json_:
            emit(record)
        else:
            render.write(render.problem(record))


@problems_app.command("check")
def check_problems(
    problems: Annotated[
        list[str] | None, typer.Argument(help="The problems' ids. Default: all of them.", metavar="[PROBLEM]...")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N. Default: cuda where there is one, else cpu.")
    ] = None,
    size: Size = None,
    precision: Annotated[
        list[str] | None,
        typer.Option(help="float32, float16 or bfloat16; may be repeated. Default: the problem's own."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Store the findings as vetting.json in the problem's folder.")
    ] = False,
    memory: Annotated[
        float | None,
        typer.Option(
            help="Only say whether each fits on a GPU of so many GiB, at full size unless --size says otherwise; no "
            "GPU is needed.",
            metavar="GIB",
            min=1,
        ),
    ] = None,
    json_: AsJson = False,
    problems_dir: ProblemsDir = None,
) -> None:
    """Vet problems: test whether the judge rejects wrong candidates, and whether the reference is fit to judge by.

    The wrong candidates return zeros, a constant or the like.

    Exit status: 0 all are ranked (or fit into memory), 1 some are not, 2 bad usage, 3 kerneljudge failed.
    """
    with turned_into_exits(as_error(json_)):
        need_server("kerneljudge problems check")
        from kerneljudge_server import local, tables
        from kerneljudge_server.folders import folder_of
        from kerneljudge_server.kept_vettings import write_vetting
        from kerneljudge_server.problems import known_problem, known_problems

        tasks = [known_problem(problems_dir, name) for name in dict.fromkeys(problems or known_problems(problems_dir))]
        if memory is not None:
            if not math.isfinite(memory):
                raise BadUsage(f"--memory is a number of GiB, not {memory}")
            if write or device is not None:
                raise BadUsage("--memory asks no device, and stores nothing: leave out --write and --device")
            plans = []
            with ProgressLine(stderr()) as line:
                for number, plan in enumerate(local.plan(tasks, size, precision, memory), 1):
                    line.show("planning", plan.problem, number / (len(tasks) * len(precision or [""])))
                    plans.append(plan)
            if json_:
                emit({"items": [{**asdict(plan), "fits": plan.fits} for plan in plans]})
            else:
                render.write(tables.plans(plans, memory))
            raise typer.Exit(ExitStatus.OK if all(plan.fits for plan in plans) else ExitStatus.NOT_PASSED)
        wanted = [
            (task, local.configure(task, device, size, name, None))
            for task in tasks
            for name in dict.fromkeys(precision or [task.dtype])
        ]
        found = []
        with ProgressLine(stderr()) as line:
            for vetting in local.vet(wanted, line.show):
                if write:
                    say(f"written: {write_vetting(folder_of(vetting.problem, problems_dir), vetting)}")
                found.append(vetting)
        if json_:
            emit({"items": [{**vetting.to_dict(), "ranked": not vetting.refused} for vetting in found]})
        else:
            for vetting in found:
                render.write(tables.vetting(vetting))
        raise typer.Exit(ExitStatus.NOT_PASSED if any(vetting.refused for vetting in found) else ExitStatus.OK)


@problems_app.command("import")
def import_problems(
    directory: Annotated[Path, typer.Argument(help="A KernelBench checkout.", metavar="DIR")],
    into: Annotated[
        Path | None,
        typer.Option(help="Folder to write problems to. Default: KERNELJUDGE_EXTRA_PROBLEMS_DIR, where all look."),
    ] = None,
    level: Annotated[list[int] | None, typer.Option(help="Only this level; may be repeated.", min=1, max=4)] = None,
    scale: Annotated[
        str | None, typer.Option(help="Add a size that moves this share of the bytes, such as 1/64.")
    ] = None,
    vet: Annotated[
        bool,
        typer.Option(help="Vet the new problems, at smoke, ten seconds and more each; else their first use does it."),
    ] = True,
    json_: AsJson = False,
    require_sandbox: RequireSandbox = None,
) -> None:
    """Import KernelBench's problems. Each is converted to kerneljudge's own form, or refused with a reason.

    Exit status: 0 all are admitted, 1 some are refused, 2 bad usage, 3 kerneljudge failed.
    """
    with turned_into_exits(as_error(json_)):
        need_server("kerneljudge problems import")
        from kerneljudge_server.folders import extra_problems_folder
        from kerneljudge_server.import_problems import parse_scale, run_import

        with ProgressLine(stderr()) as line:
            outcome = run_import(
                directory,
                extra_problems_folder() if into is None else into,
                levels=level,
                scale=parse_scale(scale),
                vetted=vet,
                show=line.show,
                require_sandbox=bool(require_sandbox),
            )
        if json_:
            emit(outcome.to_record())
        else:
            render.write(outcome.to_text())
        raise typer.Exit(outcome.status)


@problems_app.command("create")
def create_problem(given: ProblemFiles, url: Url = DEFAULT_URL, json_: AsJson = False) -> None:
    """Create a private problem at a service. The service executes its reference, so the key needs `references`."""
    with turned_into_exits(as_error(json_)), service.connect(url) as client:
        _show_created(client.create_problem(**_files(given)), client.url, as_json=json_)


@problems_app.command("update")
def update_problem(problem: CreatedId, given: ProblemFiles, url: Url = DEFAULT_URL, json_: AsJson = False) -> None:
    """Replace a problem of yours by a new version. Earlier versions and their leaderboards stay readable."""
    with turned_into_exits(as_error(json_)), service.connect(url) as client:
        _show_created(client.update_problem(problem, **_files(given)), client.url, as_json=json_)


@problems_app.command("publish")
def publish_problem(
    problem: CreatedId,
    version: Annotated[str, typer.Option(help="The version that you have read; it must be the current one.")],
    url: Url = DEFAULT_URL,
    json_: AsJson = False,
) -> None:
    """Show a client's problem to everyone, as an administrator. It cannot become private again."""
    with turned_into_exits(as_error(json_)), service.connect(url) as client:
        _show_created(client.publish_problem(problem, version=version), client.url, as_json=json_)


@problems_app.command("withdraw")
def withdraw_problem(problem: CreatedId, url: Url = DEFAULT_URL, json_: AsJson = False) -> None:
    """Take a problem of yours off every list. Its submissions stay."""
    with turned_into_exits(as_error(json_)), service.connect(url) as client:
        client.withdraw_problem(problem)
        if json_:
            emit({"withdrawn": problem})
        else:
            say(f"withdrawn: {problem}")


@problems_app.command("restore")
def restore_problem(problem: CreatedId, url: Url = DEFAULT_URL, json_: AsJson = False) -> None:
    """Put a problem that was withdrawn back on every list, as an administrator."""
    with turned_into_exits(as_error(json_)), service.connect(url) as client:
        _show_created(client.restore_problem(problem), client.url, as_json=json_)


def _files(given: Path) -> NewProblem:
    """Return the problem in a folder with ``reference.py`` and ``problem.toml``, or in a file of KernelBench alone.

    Raises ``BadUsage``, ``UnusableFile``.
    """
    if not given.is_dir():
        return {"source": read_given(str(given), is_response=False).text}
    manifest = given / "problem.toml"
    try:
        fields = tomllib.loads(read_given(str(manifest), is_response=False).text)
        json.dumps(fields, allow_nan=False)
        if fields.pop("kernelbench", None) is not None:
            say("left out: kernelbench, since a number of KernelBench's stands for one problem of a service")
    except (TypeError, ValueError) as error:
        raise BadUsage(f"{manifest}: {error}") from error
    source = read_given(str(given / "reference.py"), is_response=False).text
    return cast(NewProblem, {**fields, "source": source})


def _show_created(record: ProblemRecord, url: str, *, as_json: bool) -> None:
    if as_json:
        emit(record)
    else:
        typer.echo(record["id"])
        say(f"{record['visibility']}, version {record['version']}: {url}/problems/{record['id']}")
