"""``kerneljudge keys``, and the key that every client sends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from kerneljudge import AsyncClient, BadKey, Client, KernelRewards, RequestRefused
from kerneljudge.cli.app import app

KEY = "kj_" + "x" * 43


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELJUDGE_DATA_DIR", str(tmp_path))
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["keys", *arguments])
    return result.exit_code, result.stdout


def test_a_key_is_made_listed_and_revoked_on_the_server(here: Path) -> None:
    status, token = run("create", "ada", "--scope", "read", "--scope", "submit", "--expires-in-days", "3")
    assert (status, token.strip()[:3]) == (0, "kj_")
    made = json.loads(run("create", "root", "--scope", "admin", "--submissions-per-day", "7", "--json")[1])
    assert (made["scopes"], made["submissions_per_day"], made["created_by"]) == (["admin"], 7, "operator")
    items = json.loads(run("list", "--json")[1])["items"]
    assert [(item["client"], item["scopes"]) for item in items] == [("root", ["admin"]), ("ada", ["read", "submit"])]
    listed = run("list")[1]
    assert items[1]["id"] in listed
    assert token.strip() not in listed
    assert run("revoke", token.strip())[0] == 0
    assert run("revoke", made["id"])[0] == 0
    assert all(item["revoked"] for item in json.loads(run("list", "--json")[1])["items"])


def test_a_key_for_its_own_alone_is_made_and_told_apart(here: Path) -> None:
    result = CliRunner().invoke(app, ["keys", "create", "agent", "--own-only"])
    assert result.exit_code == 0
    assert "KERNELJUDGE_PUBLIC_READ=false" in result.stderr
    run("create", "ada")
    items = json.loads(run("list", "--json")[1])["items"]
    assert [(item["client"], item["own_only"]) for item in items] == [("ada", False), ("agent", True)]
    lines = run("list")[1].splitlines()
    assert ["own only" in line for line in lines] == [False, True]
    assert run("create", "root", "--scope", "admin", "--own-only")[0] == 2


def test_what_cannot_be_made_or_revoked_is_bad_usage(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("create", "ada", "--scope", "everything")[0] == 2
    assert run("create", " ")[0] == 2
    assert run("revoke", "key_none")[0] == 2
    monkeypatch.setenv("KERNELJUDGE_PORT", "many")
    assert run("list")[0] == 2


class Recording(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A service that asks for a key, and remembers which it was sent."""

    def __init__(self) -> None:
        self.sent: list[str | None] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request.headers.get("authorization"))
        if self.sent[-1] != f"Bearer {KEY}":
            return httpx.Response(401, json={"detail": "this needs a key", "errors": []}, request=request)
        return httpx.Response(200, json={"items": []}, request=request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


@pytest.mark.parametrize("given", [None, KEY, f" {KEY}\n"])
def test_every_client_sends_its_key(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    if given is None:
        monkeypatch.setenv("KERNELJUDGE_API_KEY", KEY)
    service = Recording()
    with Client("http://service", api_key=given, transport=service) as client:
        assert client.problems() == []

    async def ask() -> None:
        async with AsyncClient("http://service", api_key=given, transport=service) as client:
            assert await client.problems() == []

    asyncio.run(ask())
    assert service.sent == [f"Bearer {KEY}"] * 2


def test_rewards_hand_their_key_on() -> None:
    given: list[str | None] = []

    def connect(url: str, *, api_key: str | None, concurrency: int) -> AsyncClient:
        given.append(api_key)
        return AsyncClient(url, api_key=api_key, transport=Recording(), retries=0, concurrency=concurrency)

    async def grade() -> None:
        rewards = KernelRewards("http://service", api_key="kj_wrong", connect=connect)
        with pytest.raises(RequestRefused, match="put another key into KERNELJUDGE_API_KEY"):
            await rewards(["class ModelNew: ..."], ["relu"])

    asyncio.run(grade())
    assert given == ["kj_wrong"]


def test_who_has_no_key_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELJUDGE_API_KEY", KEY)
    with (
        Client("http://service", api_key="", transport=Recording()) as client,
        pytest.raises(RequestRefused, match="put a key into KERNELJUDGE_API_KEY") as refused,
    ):
        client.problems()
    assert refused.value.status == 401


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schl\u00fcssel"])
def test_what_cannot_be_a_key_is_not_sent(key: str) -> None:
    with pytest.raises(BadKey, match="KERNELJUDGE_API_KEY"):
        Client("http://service", api_key=key)


def test_a_quota_that_is_spent_is_not_waited_for() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        problem = {"detail": "the quota is spent", "errors": []}
        return httpx.Response(429, headers={"Retry-After": "40000"}, json=problem, request=request)

    def sleep(seconds: float) -> None:
        raise AssertionError(f"waits {seconds} s")

    with (
        Client("http://service", transport=httpx.MockTransport(refuse), sleep=sleep) as client,
        pytest.raises(RequestRefused, match="the quota is spent"),
    ):
        client.submit("relu", code="x")
