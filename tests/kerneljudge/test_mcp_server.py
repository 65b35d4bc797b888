"""``kerneljudge mcp`` as an agent has it: the SDK's own client, over standard input and output."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.api.conftest import LiveServer
from tests.kerneljudge.conftest import PROBLEM_IDS, PROBLEMS, Cli
from tests.kerneljudge.graded import graded_service, source

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A service that grades."""
    with graded_service(tmp_path_factory.mktemp("mcp")) as live:
        yield live


def as_agent(url: str, use: Callable[[mcp.Client], Awaitable[None]]) -> None:
    """Starts the command and talks to it."""
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "kerneljudge", "mcp", "--url", url], cwd=_ROOT, env=dict(os.environ)
    )

    async def run() -> None:
        async with mcp.Client(stdio_client(parameters)) as agent:
            await use(agent)

    asyncio.run(run())


async def call(agent: mcp.Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What ``tool`` returns."""
    result = await agent.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def refusal(agent: mcp.Client, tool: str, **arguments: Any) -> str:
    """What the agent is told where ``tool`` cannot do it."""
    result = await agent.call_tool(tool, arguments)
    assert result.is_error
    return str(getattr(result.content[0], "text"))  # noqa: B009 - it is a text, which its type leaves open


def test_an_agent_finds_a_problem_has_candidates_judged_and_reads_the_ranking(live: LiveServer) -> None:
    async def use(agent: mcp.Client) -> None:
        tools = (await agent.list_tools()).tools
        assert [tool.name for tool in tools] == [
            "list_problems",
            "show_problem",
            "create_problem",
            "update_problem",
            "withdraw_problem",
            "evaluate",
            "read_submission",
            "show_leaderboard",
        ]
        assert all(tool.description for tool in tools)
        problems = (await call(agent, "list_problems"))["problems"]
        assert [problem["id"] for problem in problems] == PROBLEM_IDS
        assert "class Model" in (await call(agent, "show_problem", problem="relu"))["reference"]

        refused = await call(agent, "evaluate", problem="relu", code=source("build: refuse"), device="cpu")
        assert (refused["status"], refused["verdict"]) == ("done", "compile_error")
        assert refused["feedback"].startswith("Verdict: compile error while compiling the extension (relu, cpu")
        assert refused["page"] == f"{live.url}/submissions/{refused['id']}"

        passed = await call(agent, "evaluate", problem="relu", code=source(), device="cpu", label="mine")
        assert (passed["verdict"], passed["speedup"], passed["gradients"]) == ("passed", 2.0, "match")
        own = {"metadata": {"step": 2}, "parent": passed["id"]}
        child = await call(agent, "evaluate", problem="relu", code=source() + "#", device="cpu", tier="check", **own)
        assert {name: child[name] for name in own} == own
        reference = (PROBLEMS / "relu" / "reference.py").read_text()
        brought = await call(agent, "evaluate", reference=reference, code=source(), device="cpu", tier="check")
        assert (brought["problem"][:10], brought["verdict"]) == ("reference_", "passed")
        created = await call(agent, "create_problem", source=reference, title="Mine")
        assert (created["title"], list(created["sizes"])) == ("Mine", ["full"])
        tried = await call(agent, "evaluate", problem=created["id"], code=source(), device="cpu", tier="check")
        assert (tried["problem"], tried["verdict"]) == (created["id"], "passed")
        changed = await call(agent, "update_problem", problem=created["id"], source=f"{reference}# changed\n")
        assert changed["version"] != created["version"]
        assert "wrong" in await refusal(agent, "create_problem", source=reference, sizes={"full": {"wrong": 1}})
        assert await call(agent, "withdraw_problem", problem=created["id"]) == {"withdrawn": created["id"]}
        assert (await call(agent, "show_problem", problem=created["id"]))["withdrawn_at"] is not None
        assert passed["rules"] == {}
        ruled = await call(agent, "evaluate", problem="relu", code=source(), rules={"languages": ["cuda"]}, wait_s=0)
        assert ruled["rules"] == {"languages": ["cuda"]}
        board = await call(agent, "show_leaderboard", problem="relu", device="cpu")
        assert [(entry["label"], entry["speedup"]) for entry in board["entries"]] == [("mine", 2.0)]

    as_agent(live.url, use)


def test_what_takes_long_is_asked_for_again(live: LiveServer) -> None:
    async def use(agent: mcp.Client) -> None:
        slow = {"problem": "relu", "code": source("evaluate: sleep 1.5"), "device": "cpu"}
        begun = await call(agent, "evaluate", **slow, wait_s=0.2)
        assert begun["verdict"] is None
        assert begun["feedback"] is None
        assert begun["message"] is not None
        assert (await call(agent, "read_submission", submission_id=begun["id"], wait_s=60))["verdict"] == "passed"

    as_agent(live.url, use)


def test_what_is_refused_is_told_to_the_agent(live: LiveServer) -> None:
    async def use(agent: mcp.Client) -> None:
        assert "there are" in await refusal(agent, "show_problem", problem="rleu")
        assert "there are" in await refusal(agent, "evaluate", problem="rleu", code=source())
        assert "size" in await refusal(agent, "evaluate", problem="relu", code=source(), size="huge")
        assert "no submission" in await refusal(agent, "read_submission", submission_id="none")
        assert "device" in await refusal(agent, "evaluate", problem="relu", code=source(), device="tpu")

    as_agent(live.url, use)


def test_without_the_package_the_command_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.delitem(sys.modules, "kerneljudge.mcp_server", raising=False)
    result = cli("mcp")
    assert result.exit_code == 2
    assert "pip install 'kerneljudge[mcp]'" in result.stderr


def test_nothing_else_loads_the_package() -> None:
    code = "import sys, kerneljudge.cli.app; print('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
