"""A server of the Model Context Protocol. Its tools let an agent write a kernel and have it judged.

It talks to its agent over standard input and output, and to the service through the client. It needs the package
``mcp``, which comes with ``kerneljudge[mcp]``. Only the command ``kerneljudge mcp`` imports this module.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from kerneljudge._version import __version__
from kerneljudge.async_client import AsyncClient
from kerneljudge.errors import ClientError
from kerneljudge.records import RulesRecord, SubmissionRecord
from kerneljudge.requests import NewProblem, Tolerance

__all__ = ["make_server"]

_WAIT_S: Final = 50.0
"""Many agents give up on a tool after a minute."""
_INSTRUCTIONS: Final = (
    "kerneljudge grades rewritten PyTorch models. Read a problem, write Python source that defines ModelNew (inline "
    "CUDA or C++ by torch.utils.cpp_extension.load_inline, or Triton), evaluate it, and improve it by its feedback. "
    "A candidate must be right before its speed counts; its gradients are verified as well."
)
_OF_PROBLEM: Final = (
    "id",
    "version",
    "title",
    "description",
    "dtype",
    "sizes",
    "gradient_policy",
    "ranked",
    "baselines",
    "rules",
)
_OF_SUBMISSION: Final = (
    "id",
    "status",
    "verdict",
    "gradients",
    "problem",
    "device",
    "size",
    "precision",
    "tier",
    "rules",
    "metadata",
    "parent",
    "speedup",
    "speedup_interval",
    "speedup_status",
    "speedup_training",
    "speedup_training_status",
    "roofline_share",
    "feedback",
    "queue_position",
)
_OF_ENTRY: Final = ("rank", "submission", "author", "label", "speedup", "speedup_interval", "gradients", "device_name")


def make_server(url: str) -> MCPServer[Any]:
    """Return a server whose tools use the service at ``url``."""
    server = MCPServer("kerneljudge", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")
    tools = _Tools(url)
    for tool in (
        tools.list_problems,
        tools.show_problem,
        tools.create_problem,
        tools.update_problem,
        tools.withdraw_problem,
        tools.evaluate,
        tools.read_submission,
        tools.show_leaderboard,
    ):
        server.add_tool(tool)
    return server


class _Tools:
    """The tools. Agents read their docstrings."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def list_problems(self) -> dict[str, Any]:
        """List all problems for which a kernel can be written: id, title, sizes, precision."""
        async with self._service() as service:
            problems = await service.problems()
        return {"problems": [{name: problem.get(name) for name in _OF_PROBLEM} for problem in problems]}

    async def show_problem(self, problem: str) -> dict[str, Any]:
        """Read one problem with the Python source of its reference Model, which ModelNew has to match."""
        async with self._service() as service:
            found = await service.problem(problem)
        return {name: found.get(name) for name in (*_OF_PROBLEM, "reference", "withdrawn_at")}

    async def create_problem(
        self,
        source: str,
        title: str | None = None,
        description: str | None = None,
        sizes: dict[str, dict[str, int | float]] | None = None,
        tolerance: dict[str, Tolerance] | None = None,
        rules: RulesRecord | None = None,
    ) -> dict[str, Any]:
        """Create a private problem from the Python source of a reference: Model, get_inputs and get_init_inputs.

        The service has to allow it, and the key as well. sizes gives the source's globals at each size, full among
        them; tolerance gives atol and rtol by precision. The returned id is for evaluate.
        """
        new: NewProblem = {"source": source, "title": title, "description": description, "sizes": sizes}
        new |= {"tolerance": tolerance, "rules": rules}
        async with self._service() as service:
            found = await service.create_problem(**new)
        return {name: found.get(name) for name in _OF_PROBLEM}

    async def update_problem(
        self,
        problem: str,
        source: str,
        title: str | None = None,
        description: str | None = None,
        sizes: dict[str, dict[str, int | float]] | None = None,
        tolerance: dict[str, Tolerance] | None = None,
        rules: RulesRecord | None = None,
    ) -> dict[str, Any]:
        """Replace a problem that was created before by a new version. Fields that are left out get their defaults."""
        new: NewProblem = {"source": source, "title": title, "description": description, "sizes": sizes}
        new |= {"tolerance": tolerance, "rules": rules}
        async with self._service() as service:
            found = await service.update_problem(problem, **new)
        return {name: found.get(name) for name in _OF_PROBLEM}

    async def withdraw_problem(self, problem: str) -> dict[str, Any]:
        """Take a problem that was created before off every list. Its submissions stay."""
        async with self._service() as service:
            await service.withdraw_problem(problem)
        return {"withdrawn": problem}

    async def evaluate(
        self,
        code: str,
        problem: str | None = None,
        reference: str | None = None,
        device: Literal["cpu", "cuda"] | None = None,
        size: str | None = None,
        precision: Literal["float32", "float16", "bfloat16"] | None = None,
        require_gradients: bool | None = None,
        tier: Literal["check", "quick", "full"] | None = None,
        rules: RulesRecord | None = None,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,
        parent: str | None = None,
        wait_s: float = _WAIT_S,
    ) -> dict[str, Any]:
        """Submit Python source that defines ModelNew, and wait for the verdict and the feedback.

        problem is the id of a problem. In its place, reference is the Python source of a Model of your own, with
        get_inputs and get_init_inputs, where the service takes any.
        tier="check" gives the verdict alone, soonest; "quick" adds a rough speedup; "full" is what leaderboards rank.
        rules about the source add to those of the problem: {"forbidden_operators": ["matmul"]}. A broken one is the
        verdict rejected.
        metadata is a JSON object to keep beside it; parent is the id of the submission that it improves on.
        Options that are left out are decided by the service. If there is no verdict within wait_s seconds, the status
        shows the progress. Then call read_submission with the returned id.
        """
        async with self._service() as service:
            record = await service.submit(
                problem=problem,
                reference=None if reference is None else {"source": reference},
                code=code,
                device=device,
                size=size,
                precision=precision,
                require_gradients=require_gradients,
                tier=tier,
                rules=rules,
                label=label,
                metadata=metadata,
                parent=parent,
            )
            return await _awaited(service, record, wait_s)

    async def read_submission(self, submission_id: str, wait_s: float = 0) -> dict[str, Any]:
        """Read the verdict and the feedback of a submission, or its progress.

        Waits up to wait_s seconds for the verdict.
        """
        async with self._service() as service:
            return await _awaited(service, await service.get(submission_id), wait_s)

    async def show_leaderboard(
        self,
        problem: str,
        track: Literal["inference", "training"] = "inference",
        device: Literal["cpu", "cuda"] | None = None,
        limit: int = 10,
    ) -> dict[str, Any]:
        """Read the leaderboard of a problem: forward alone (inference), or forward and backward (training)."""
        async with self._service() as service:
            board = await service.leaderboard(problem, device=device, track=track, limit=limit)
        entries = [{name: entry.get(name) for name in _OF_ENTRY} for entry in board["entries"]]
        known = {name: board.get(name) for name in ("problem", "device", "track", "size", "precision", "refusal")}
        return {**known, "entries": entries}

    @contextlib.asynccontextmanager
    async def _service(self) -> AsyncIterator[AsyncClient]:
        """Open the service. Its refusals and outages become errors that the agent can read."""
        try:
            async with AsyncClient(self._url) as service:
                yield service
        except ClientError as error:
            raise ToolError(str(error)) from error


async def _awaited(service: AsyncClient, record: SubmissionRecord, wait_s: float) -> dict[str, Any]:
    """Return the submission after at most ``wait_s``."""
    with contextlib.suppress(TimeoutError):
        record = await service.wait(str(record["id"]), timeout_s=wait_s)
    found = {name: record.get(name) for name in _OF_SUBMISSION}
    page = f"{service.url}{record['links']['page']}"
    # With a verdict, the feedback contains the message.
    return {**found, "page": page} | ({} if record["verdict"] else {"message": record["message"]})
