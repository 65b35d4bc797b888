"""Without keys: nobody is asked who he is, everything is public, and nobody from elsewhere can come."""

from __future__ import annotations

import os
import subprocess
import sys

import httpx
import pytest

from api.app import create_app
from api.server import make_server
from runtime.settings import InvalidSettings, Settings
from tests.api.conftest import Post, assert_problem, fields
from tests.api.outline import page


def test_nobody_is_asked_for_a_key(http: httpx.Client, post: Post) -> None:
    record = post(headers={"Authorization": "Bearer kj_of_another_service"}).json()
    assert (record["owner"], record["visibility"], record["source_shown"]) == (None, "public", True)
    assert "ratelimit" not in http.get("/api/v1/problems").headers
    assert "Sign in" not in page(http, "/")
    assert http.delete(record["links"]["self"]).json()["status"] == "cancelled"


def test_what_nobody_owns_cannot_be_hidden(http: httpx.Client, post: Post) -> None:
    for visibility in ("private", "source_hidden"):
        assert fields(assert_problem(post(visibility=visibility), 422)) == {"visibility"}
    batch = {"visibility": "private", "submissions": []}
    assert fields(assert_problem(http.post("/api/v1/batches", json=batch), 422)) == {"visibility"}


def test_keys_are_not_made_by_whoever_comes(http: httpx.Client) -> None:
    body = {"client": "me", "scopes": ["admin"]}
    assert "kerneljudge keys create" in str(assert_problem(http.post("/api/v1/keys", json=body), 403)["detail"])
    assert_problem(http.get("/api/v1/keys"), 403)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "a.example", ""])
def test_no_server_is_open_to_other_machines(api_settings: Settings, host: str) -> None:
    exposed = api_settings.model_copy(update={"host": host})
    with pytest.raises(InvalidSettings, match="KERNELJUDGE_AUTH=required"):
        make_server(exposed)
    make_server(exposed.model_copy(update={"auth": "required"}))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_alone_needs_no_keys(api_settings: Settings, host: str) -> None:
    assert api_settings.model_copy(update={"host": host}).exposure is None


@pytest.mark.parametrize("command", [["-m", "api"], ["-m", "kerneljudge", "serve"]], ids=["api", "serve"])
def test_who_starts_it_is_told_what_to_do(api_settings: Settings, command: list[str]) -> None:
    environment = {
        **os.environ,
        "KERNELJUDGE_HOST": "0.0.0.0",
        "KERNELJUDGE_DATA_DIR": str(api_settings.data_dir),
        "KERNELJUDGE_PROBLEMS_DIR": str(api_settings.problems_dir),
    }
    result = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert "KERNELJUDGE_AUTH=required" in result.stderr


def test_the_document_says_what_takes_a_key(api_settings: Settings) -> None:
    def taking_keys(**changes: object) -> tuple[bool, set[str]]:
        document = create_app(api_settings.model_copy(update=changes)).openapi()
        operations = {
            f"{method} {path}": each for path, methods in document["paths"].items() for method, each in methods.items()
        }
        asked = {name for name, each in operations.items() if each.get("security", document.get("security"))}
        return "securitySchemes" in document["components"], asked

    assert taking_keys() == (False, set())
    described, asked = taking_keys(auth="required")
    assert described
    assert {"post /api/v1/submissions", "get /api/v1/keys"} <= asked
    assert "get /api/v1/submissions" not in asked
    _, asked = taking_keys(auth="required", public_read=False)
    assert "get /api/v1/submissions" in asked
    assert not {"get /healthz", "get /readyz"} & asked
