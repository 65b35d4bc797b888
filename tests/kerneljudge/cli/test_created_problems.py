"""``kerneljudge problems create``, ``update``, ``publish`` and ``withdraw``, and the same calls of both clients."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from kerneljudge.async_client import AsyncClient
from kerneljudge.client import Client
from kerneljudge.errors import RequestRefused
from runtime.settings import Settings
from tests.kerneljudge.conftest import PROBLEMS, URL, Cli

SOURCE = (PROBLEMS / "relu" / "reference.py").read_text(encoding="utf-8")
MANIFEST = """
title = "Mine"
description = "My problem."

[sizes.smoke]
dim = 8

[sizes.full]

[reference]
row_independent = true
"""


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    """An application that takes references."""
    return create_app(Settings(data_dir=tmp_path / "data", problems_dir=PROBLEMS, request_references=True))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A problem in our own form."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "reference.py").write_text(SOURCE)
    (folder / "problem.toml").write_text(MANIFEST)
    return folder


def test_a_folder_becomes_a_problem_of_the_service(online: Cli, service: Client, folder: Path) -> None:
    result = online("problems", "create", folder)
    assert result.exit_code == 0, result.output
    problem = result.stdout.strip()
    record = service.problem(problem)
    assert (record["title"], record["sizes"]["smoke"]) == ("Mine", {"dim": 8})
    assert f"version {record['version']}: {URL}/problems/{problem}" in result.stderr
    assert problem in online("problems", "list", "--url", URL).stdout

    (folder / "reference.py").write_text(f"{SOURCE}# changed\n")
    changed = json.loads(online("problems", "update", problem, folder, "--json").stdout)
    assert (changed["id"], changed["versions"]) == (problem, [changed["version"], record["version"]])
    assert service.problem(problem, version=record["version"])["reference"] == SOURCE
    assert record["version"] in online("problems", "show", problem, "--url", URL).stdout
    assert service.leaderboard(problem, problem_version=record["version"])["problem_version"] == record["version"]

    old = online("problems", "publish", problem, "--version", record["version"])
    assert old.exit_code == 2, old.output
    assert changed["version"] in old.stderr
    published = online("problems", "publish", problem, "--version", changed["version"], "--json")
    assert json.loads(published.stdout)["visibility"] == "public"
    assert json.loads(online("problems", "withdraw", problem, "--json").stdout) == {"withdrawn": problem}
    assert problem not in online("problems", "list", "--url", URL).stdout


def test_a_file_of_kernelbench_becomes_a_problem_as_it_is(online: Cli, service: Client, tmp_path: Path) -> None:
    (tmp_path / "19_ReLU.py").write_text(SOURCE)
    record = json.loads(online("problems", "create", "19_ReLU.py", "--json").stdout)
    assert record["reference"] == SOURCE
    assert online("problems", "withdraw", record["id"]).exit_code == 0
    assert service.problem(record["id"])["withdrawn_at"] is not None
    assert record["id"] not in [each["id"] for each in service.problems()]
    assert online("problems", "restore", record["id"]).stdout.strip() == record["id"]
    assert record["id"] in [each["id"] for each in service.problems()]


def test_the_folder_of_an_imported_problem_is_taken_without_its_number(online: Cli, service: Client) -> None:
    result = online("problems", "create", PROBLEMS / "relu")
    assert result.exit_code == 0, result.output
    assert "left out: kernelbench" in result.stderr
    record = service.problem(result.stdout.strip())
    assert (record["kernelbench"], record["reference"]) == (None, SOURCE)
    assert set(record["sizes"]) == set(service.problem("relu")["sizes"])


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("title = ", "problem.toml"),
        ("title = 2026-01-01", "problem.toml"),
        ('title = "T"\n[limits]\ncall_s = 9\n', "limits"),
        ('title = "T"\n[sizes.smoke]\n', "sizes.full"),
    ],
)
def test_what_is_no_problem_is_bad_usage(online: Cli, folder: Path, manifest: str, words: str) -> None:
    (folder / "problem.toml").write_text(manifest)
    result = online("problems", "create", folder)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert online("problems", "create", folder / "nothing.py").exit_code == 2
    assert online("problems", "withdraw", "prob_none").exit_code == 2


def test_the_asynchronous_client_has_the_same_calls(app: FastAPI, transport: httpx.BaseTransport) -> None:
    assert transport is not None  # the application is started

    async def use() -> None:
        async with AsyncClient(URL, transport=httpx.ASGITransport(app)) as client:
            record = await client.create_problem(source=SOURCE, title="Mine", sizes={"full": {"dim": 9}})
            assert (record["title"], record["sizes"]) == ("Mine", {"full": {"dim": 9}})
            changed = await client.update_problem(record["id"], source=f"{SOURCE}# changed\n")
            assert changed["versions"] == [changed["version"], record["version"]]
            assert (await client.problem(record["id"], version=record["version"]))["reference"] == SOURCE
            assert (await client.publish_problem(record["id"], version=changed["version"]))["visibility"] == "public"
            assert record["id"] in [each["id"] for each in await client.problems()]
            await client.withdraw_problem(record["id"])
            with pytest.raises(RequestRefused, match="no problem"):
                await client.withdraw_problem(record["id"])
            assert (await client.restore_problem(record["id"]))["withdrawn_at"] is None

    asyncio.run(use())
