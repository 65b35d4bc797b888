"""The command ``kerneljudge``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, cast

import typer

from evaluator.config import DEVICE_KINDS
from evaluator.devices.discovery import available_devices
from evaluator.diagnosis.findings import Tool
from evaluator.evaluation import Status
from kerneljudge.cli import diagnosis_tables, follow, render, service
from kerneljudge.cli.keys import keys_app
from kerneljudge.cli.options import (
    AsJson,
    AsResponse,
    Author,
    Baseline,
    File,
    LimitsOption,
    LowerLimits,
    Precision,
    ProblemId,
    ProblemsDir,
    RequireGradients,
    RequireSandbox,
    Size,
    TierOption,
    Url,
    Visibility,
    known_problem,
)
from kerneljudge.cli.output import BadUsage, ExitStatus, as_error, emit, finish, say, stderr, turned_into_exits
from kerneljudge.cli.problems import problems_app
from kerneljudge.cli.progress import ProgressLine
from kerneljudge.client import DEFAULT_URL
from kerneljudge.grading import local
from kerneljudge.grading.options import GradingOptions
from kerneljudge.grading.sources import problems_folder, read_given
from kerneljudge.records import TierName
from kerneljudge.requests import SubmissionOptions

__all__ = ["app", "main"]

_CONTEXT = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="kerneljudge",
    help="Judges rewritten PyTorch models: are they right, and how fast?\n\n"
    "Exit status: 0 passed, 1 the candidate did not pass, 2 bad usage, 3 the fault is ours.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=_CONTEXT,
)


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
    # It is imported here, because no other command needs the supervision of processes.
    from kerneljudge.cli.serve import serve as run  # noqa: PLC0415

    with turned_into_exits():
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
    problem: ProblemId,
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
            emit(local.fault(problem, message, **known))

    with turned_into_exits(as_record):
        task = known_problem(problems_dir, problem)
        given = read_given(file, is_response=response)
        config = local.configure(
            task, device, size, precision, require_gradients, baseline, compiled=compiled, limits=limits, tier=tier
        )
        known.update(device=config.device_kind, size=config.size, precision=config.precision, tier=tier)
        known.update(problem_version=task.version)
        with ProgressLine(stderr()) as line:
            outcome = local.evaluate(task, given.parse(), config, line.show, require_sandbox=bool(require_sandbox))
        outcome.record["tier"] = cast(TierName, tier)
        if log and outcome.log:
            say(outcome.log.rstrip("\n"))
        finish(outcome.record, as_json=json_)


@app.command()
def diagnose(
    file: File,
    problem: ProblemId,
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
        task = known_problem(problems_dir, problem)
        given = read_given(file, is_response=response)
        size = size or tool.usual_size(task.sizes, task.default_size("cuda"))
        config = local.configure(task, device, size, precision, None)
        if config.device_kind != "cuda":
            raise BadUsage("these tools know of CUDA alone: device must be cuda or cuda:N")
        found = local.diagnose(task, given.parse(), config, tool, require_sandbox=bool(require_sandbox))
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
    # It is imported here, because the other commands do not start an engine.
    from kerneljudge.cli.doctor import examine  # noqa: PLC0415

    with turned_into_exits(as_error(json_)):
        if device is not None and device.partition(":")[0] not in DEVICE_KINDS:
            raise BadUsage(f"device must be cpu, cuda or cuda:N, not {device!r}")
        examination = examine([device] if device is not None else available_devices(), self_test=self_test)
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
    from kerneljudge.cli.prepare import prepare_machine  # noqa: PLC0415

    with turned_into_exits(as_error(json_)):
        record, complete = prepare_machine(say, recipes or [])
        if json_:
            emit(record)
        raise typer.Exit(ExitStatus.OK if complete else ExitStatus.NOT_PASSED)


@app.command()
def submit(
    file: File,
    problem: ProblemId,
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
    response: AsResponse = False,
    label: Annotated[str | None, typer.Option(help="Your name for it. Default: the file's name.")] = None,
    author: Author = None,
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
            emit(local.fault(problem, message, **known))

    options = GradingOptions(device, size, precision, require_gradients, baseline, limits, tier, author, visibility)
    with turned_into_exits(as_record), service.connect(url) as client:
        given = read_given(file, is_response=response)
        wanted: SubmissionOptions = {
            **options.to_request(),
            "label": given.name if label is None else label,
            "requirements": None if device_name is None else {"device_name": device_name},
        }
        record = client.submit(problem, code=given.code, response=given.response, **wanted)
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


@app.command()
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
    eval_results: Annotated[Path | None, typer.Option(help="Also write KernelBench's eval_results.json here.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: cuda where there is one, else cpu.")] = None,
    size: Size = None,
    precision: Precision = None,
    require_gradients: RequireGradients = None,
    baseline: Baseline = "eager",
    limits: LowerLimits = "",
    tier: TierOption = "full",
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
    from kerneljudge.grading.grade import Fields, grade_all  # noqa: PLC0415 - no other command needs it

    with turned_into_exits(as_error(json_)):
        fields = Fields(code=code_field, response=response_field, problem=problem_field, key=key_field)
        options = GradingOptions(device, size, precision, require_gradients, baseline, limits, tier, author, visibility)
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


@app.command()
def leaderboard(
    problem: Annotated[str | None, typer.Argument(help="The problem's id. Default: every problem.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: the service decides.")] = None,
    track: Annotated[str, typer.Option(help="inference, or training (forward and backward).")] = "inference",
    size: Size = None,
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
                name, device=device, track=track, size=size, precision=precision, device_name=device_name, limit=limit
            )
            for name in wanted
        ]
        if json_:
            emit(boards[0] if problem is not None else {"boards": boards})
            return
        for board in boards:
            render.write(render.leaderboard(board))


@app.command()
def mcp(url: Url = DEFAULT_URL) -> None:
    """Serve an agent by the Model Context Protocol (MCP) over standard input and output.

    It offers problems, verdicts and feedback.
    """
    with turned_into_exits():
        try:
            # It is imported here, because the package is an extra and brings half a web server along.
            from kerneljudge.mcp_server import make_server  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise BadUsage(f"this needs the package mcp ({error}): pip install 'kerneljudge[mcp]'") from error
        make_server(url).run("stdio")


app.add_typer(keys_app, name="keys")
app.add_typer(problems_app, name="problems")
