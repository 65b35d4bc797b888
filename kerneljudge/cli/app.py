"""The command ``kerneljudge``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, cast

import typer

from kerneljudge._version import __version__
from kerneljudge.cli import diagnosis_tables, render
from kerneljudge.cli.keys import keys_app
from kerneljudge.cli.options import (
    AsJson,
    AsResponse,
    Baseline,
    File,
    LimitsOption,
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
)
from kerneljudge.cli.output import BadUsage, ExitStatus, as_error, emit, finish, say, stderr, turned_into_exits
from kerneljudge.cli.problems import problems_app
from kerneljudge.cli.progress import ProgressLine
from kerneljudge.cli.server_part import need_server
from kerneljudge.cli.service_commands import batches_app, grade, leaderboard, submit
from kerneljudge.client import DEFAULT_URL
from kerneljudge.grading.local_record import failed_record
from kerneljudge.grading.sources import read_given
from kerneljudge.records import TierName
from kerneljudge.terms.choices import DEVICE_KINDS
from kerneljudge.terms.findings import Tool

__all__ = ["app", "main"]

_CONTEXT = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="kerneljudge",
    help="Judges rewritten PyTorch models: are they right, and how fast?\n\n"
    "Exit status: 0 passed, 1 the candidate did not pass, 2 bad usage, 3 the fault is ours.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=_CONTEXT,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kerneljudge {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def main() -> None:
    """The entry point."""
    # A termination raises ``SystemExit``, so that everything that a command has started is stopped with it.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    app()


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Default: 8000.", min=1, max=65535)] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Database, queue and cache. Default: .kerneljudge.")] = None,
    problems_dir: ProblemsDir = None,
    devices: Annotated[str | None, typer.Option(help="Such as cpu,cuda:0. Default: all of this machine.")] = None,
    build_slots: Annotated[int | None, typer.Option(help="How many compilations at a time.", min=1)] = None,
    require_sandbox: RequireSandbox = None,
) -> None:
    """Start the service on this machine: the API, its pages and the workers. Ctrl-C stops it."""
    with turned_into_exits():
        need_server("kerneljudge serve")
        from kerneljudge_server.folders import problems_folder
        from kerneljudge_server.serve import serve as run

        status = run(
            host=host,
            port=port,
            data_dir=data_dir,
            problems_dir=problems_folder(problems_dir),
            devices=None if devices is None else [name.strip() for name in devices.split(",") if name.strip()],
            build_slots=build_slots,
            require_sandbox=require_sandbox,
        )
        raise typer.Exit(status)


@app.command("eval")
def evaluate(
    file: File,
    problem: ProblemId = None,
    reference: ReferenceFile = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N. Default: cuda where there is one, else cpu.")
    ] = None,
    size: Size = None,
    precision: Precision = None,
    require_gradients: RequireGradients = None,
    baseline: Baseline = "eager",
    compiled: Annotated[
        bool,
        typer.Option("--compiled", help="Also hold it against torch.compile; measured once, and then known."),
    ] = False,
    limits: LimitsOption = "",
    tier: TierOption = "full",
    rules: RulesOption = "",
    response: AsResponse = False,
    json_: AsJson = False,
    log: Annotated[bool, typer.Option("--log", help="Print the output of the compiler and of the candidate.")] = False,
    problems_dir: ProblemsDir = None,
    require_sandbox: RequireSandbox = None,
) -> None:
    """Evaluate a candidate on this machine. No service is needed."""
    known: dict[str, str] = {}

    def as_record(message: str) -> None:
        if json_:
            emit(failed_record(problem or known.pop("problem", ""), message, **known))

    with turned_into_exits(as_record):
        need_server("kerneljudge eval", "kerneljudge submit --watch has a service do it")
        from kerneljudge_server import local
        from kerneljudge_server.problems import chosen_problem

        task = chosen_problem(problems_dir, problem, reference, precision)
        if problem is None:
            known.update(problem=task.id)
        given = read_given(file, is_response=response)
        settings = (device, size, precision, require_gradients, baseline)
        config = local.configure(task, *settings, compiled=compiled, limits=limits, tier=tier, rules=rules)
        known.update(device=config.device_kind, size=config.size, precision=config.precision, tier=tier)
        known.update(problem_version=task.version)
        with ProgressLine(stderr()) as line:
            outcome = local.evaluate(
                task, local.candidate_of(given), config, line.show, require_sandbox=bool(require_sandbox)
            )
        outcome.record["tier"] = cast(TierName, tier)
        if log and outcome.log:
            say(outcome.log.rstrip("\n"))
        finish(outcome.record, as_json=json_)


@app.command()
def diagnose(
    file: File,
    problem: ProblemId = None,
    reference: ReferenceFile = None,
    tool: Annotated[
        Tool, typer.Option(help="A tool of compute-sanitizer, or counters (ncu): how fast each kernel is, and why.")
    ] = Tool.MEMCHECK,
    device: Annotated[str, typer.Option(help="cuda or cuda:N.")] = "cuda",
    size: Annotated[
        str | None,
        typer.Option(help="smoke, full, or another size of the problem. Default: full for counters, else smoke."),
    ] = None,
    precision: Precision = None,
    response: AsResponse = False,
    json_: AsJson = False,
    log: Annotated[bool, typer.Option("--log", help="Print the output of the candidate and of the tool.")] = False,
    problems_dir: ProblemsDir = None,
    require_sandbox: RequireSandbox = None,
) -> None:
    """Run a candidate once under compute-sanitizer or ncu, in the sandbox. Find the faulty or slow line.

    Exit status: 0 no fault was found, 1 a fault was found or the candidate failed, 3 the tool gave no result.
    """
    with turned_into_exits(as_error(json_)):
        need_server("kerneljudge diagnose")
        from kerneljudge_server import local
        from kerneljudge_server.problems import chosen_problem

        task = chosen_problem(problems_dir, problem, reference, precision)
        given = read_given(file, is_response=response)
        size = size or tool.usual_size(task.sizes, task.default_size("cuda"))
        config = local.configure(task, device, size, precision, None)
        if config.device_kind != "cuda":
            raise BadUsage("these tools know of CUDA alone: device must be cuda or cuda:N")
        found = local.diagnose(task, local.candidate_of(given), config, tool, require_sandbox=bool(require_sandbox))
        if log and found.printed:
            say(found.printed.rstrip("\n"))
        if json_:
            emit(found.to_dict())
        else:
            render.write(diagnosis_tables.found(found, render.plain))
        status = ExitStatus.OK if found.clean else ExitStatus.FAULT if found.obstacle else ExitStatus.NOT_PASSED
        raise typer.Exit(status)


@app.command()
def doctor(
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N. Default: every device of this machine.")
    ] = None,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test", help="Have a right, a wrong and a crashing candidate judged on each, as workers do."
        ),
    ] = False,
    json_: AsJson = False,
) -> None:
    """Check whether this machine can evaluate candidates, and in a complete sandbox. Report missing parts."""
    with turned_into_exits(as_error(json_)):
        need_server("kerneljudge doctor")
        from kerneljudge_server.doctor import examine

        if device is not None and device.partition(":")[0] not in DEVICE_KINDS:
            raise BadUsage(f"device must be cpu, cuda or cuda:N, not {device!r}")
        examination = examine(None if device is None else [device], self_test=self_test)
        if json_:
            emit(examination.to_record())
        else:
            render.write(examination.to_text())
        raise typer.Exit(ExitStatus.FAULT if examination.lacks else ExitStatus.OK)


@app.command()
def prepare(
    recipes: Annotated[
        list[str] | None, typer.Argument(help="Recipes to prepare for, see kerneljudge doctor. Default: all.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Prepare fast builds, once for this machine's torch and compilers. It takes minutes, and is optional.

    Exit status: 0 everything is there, 1 something could not be made, and builds work without it.
    """
    with turned_into_exits(as_error(json_)):
        need_server("kerneljudge prepare")
        from kerneljudge_server.prepare import prepare_machine

        record, complete = prepare_machine(say, recipes or [])
        if json_:
            emit(record)
        raise typer.Exit(ExitStatus.OK if complete else ExitStatus.NOT_PASSED)


app.command()(submit)
app.command()(grade)
app.command()(leaderboard)


@app.command()
def mcp(url: Url = DEFAULT_URL) -> None:
    """Serve an agent by the Model Context Protocol (MCP) over standard input and output.

    It offers problems, verdicts and feedback.
    """
    with turned_into_exits():
        try:
            # It is imported here, because the package is an extra and brings half a web server along.
            from kerneljudge.mcp_server import make_server
        except ModuleNotFoundError as error:
            raise BadUsage(f"this needs the package mcp ({error}): pip install 'kerneljudge[mcp]'") from error
        make_server(url).run("stdio")


app.add_typer(batches_app, name="batches")
app.add_typer(keys_app, name="keys")
app.add_typer(problems_app, name="problems")
