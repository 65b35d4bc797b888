"""Keys over HTTP: who may what, how often, and what is written down of it."""

from __future__ import annotations

import asyncio
import csv
import io
from datetime import timedelta
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from sqlalchemy.orm import Session, sessionmaker

from api.app import create_app
from api.http.errors import TooManyRequests
from api.schemas.keys import KeyChange
from api.services.container import Services
from api.services.rate_limit import Meter
from runtime.settings import Settings
from storage.access.keys import Scope
from storage.models import ApiKey
from tests.api.conftest import PROBLEMS, assert_problem, fields
from tests.api.inmemory import AppTransport, running
from tests.api.keyring import Keyring
from tests.api.outline import page
from tests.api.seeds import SOURCE, Seeds

CODE = {"problem": "relu", "code": SOURCE}
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}


@pytest.fixture
def api_settings(tmp_path: Any) -> Settings:
    limits = {"submissions_per_day": 5, "requests_per_min": 1000, "anonymous_requests_per_min": 30}
    return Settings(data_dir=tmp_path / "data", problems_dir=PROBLEMS, port=0, auth="required", **limits)


@pytest.fixture
def keys(transport: AppTransport, services: Services) -> Keyring:
    return Keyring(services.sessions)


def submit(http: httpx.Client, headers: dict[str, str], **changes: object) -> httpx.Response:
    return http.post("/api/v1/submissions", json={**CODE, **changes}, headers=headers)


def test_a_whole_number_may_be_written_with_a_fraction_of_zero() -> None:
    """JSON Schema calls it an integer, and so does the API's document."""
    assert KeyChange.model_validate({"requests_per_min": 37976.0}).requests_per_min == 37976
    for wrong in (37976.5, True, "5", float("inf")):
        with pytest.raises(ValidationError):
            KeyChange.model_validate({"requests_per_min": wrong})


def test_without_a_key_one_reads_and_hands_nothing_in(http: httpx.Client) -> None:
    assert http.get("/api/v1/problems").status_code == 200
    answer = submit(http, {})
    problem = assert_problem(answer, 401)
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "kj_" in str(problem["detail"])
    assert "submit" in str(problem["detail"])


def test_what_is_no_key_is_refused_even_where_none_is_needed(http: httpx.Client, keys: Keyring) -> None:
    keys.make("ada")
    for given in ("kj_made_up", keys.tokens["ada"] + "x", "", "\u00fc"):
        headers = {"Authorization": f"Bearer {given}".encode()}
        answer = http.get("/api/v1/problems", headers=headers)  # type: ignore[arg-type]
        assert_problem(answer, 401)
    # What a proxy in front of the service asks for is none of ours.
    assert http.get("/api/v1/problems", headers={"Authorization": "Basic YTpi"}).status_code == 200


def test_a_key_does_what_it_was_made_for(http: httpx.Client, keys: Keyring) -> None:
    keys.make("reader", [Scope.READ])
    keys.make("ada", [Scope.SUBMIT])
    keys.make("root", [Scope.ADMIN])
    assert_problem(submit(http, keys["reader"]), 403)
    assert submit(http, keys["ada"]).json()["owner"] == "ada"
    assert submit(http, keys["root"]).status_code == 202
    for path in ("/api/v1/keys", "/api/v1/audit"):
        assert_problem(http.get(path), 401)
        assert_problem(http.get(path, headers=keys["ada"]), 403)
        assert http.get(path, headers=keys["root"]).status_code == 200


def test_a_key_ends(http: httpx.Client, keys: Keyring) -> None:
    keys.make("root", [Scope.ADMIN])
    keys.make("late", expires_in=timedelta(0))
    assert_problem(submit(http, keys["late"]), 401)
    keys.make("ada")
    assert submit(http, keys["ada"]).status_code == 202
    revoked = http.delete(f"/api/v1/keys/{keys.ids['ada']}", headers=keys["root"]).json()
    assert revoked["revoked"] is not None
    assert_problem(submit(http, keys["ada"]), 401)


def test_an_administrator_makes_a_key_that_is_shown_once(http: httpx.Client, keys: Keyring, services: Services) -> None:
    keys.make("root", [Scope.ADMIN])
    body = {"client": "ada", "scopes": ["submit"], "expires_in_days": 1, "requests_per_min": 7}
    made = http.post("/api/v1/keys", json=body, headers=keys["root"])
    assert made.status_code == 201
    token = made.json()["key"]
    listed = http.get("/api/v1/keys", headers=keys["root"])
    assert listed.json()["items"][0]["id"] == made.json()["id"]
    assert token not in listed.text
    with services.readers() as session:
        stored = session.get_one(ApiKey, made.json()["id"])
        assert token not in (stored.digest, stored.prefix)
    answer = submit(http, {"Authorization": f"Bearer {token}"})
    assert (answer.status_code, answer.headers["ratelimit-policy"]) == (202, '"minute";q=7;w=60')
    assert answer.headers["cache-control"] == "no-store"
    own = http.post("/api/v1/keys", json={**body, "client": "agent", "own_only": True}, headers=keys["root"])
    assert (own.status_code, own.json()["own_only"]) == (201, True)
    listed = http.get("/api/v1/keys", headers=keys["root"]).json()["items"]
    assert [each["client"] for each in listed if each["own_only"]] == ["agent"]
    both = {**body, "scopes": ["read", "admin"], "own_only": True}
    assert "sees everything" in http.post("/api/v1/keys", json=both, headers=keys["root"]).text
    assert_problem(http.post("/api/v1/keys", json=both, headers=keys["root"]), 422)
    wrong = http.post("/api/v1/keys", json={"client": "", "scopes": ["all"]}, headers=keys["root"])
    assert fields(assert_problem(wrong, 422)) == {"client", "scopes"}
    assert_problem(http.delete("/api/v1/keys/key_none", headers=keys["root"]), 404)


def test_what_administrators_do_is_written_down(http: httpx.Client, keys: Keyring, seeds: Seeds) -> None:
    keys.make("root", [Scope.ADMIN])
    keys.make("ada")
    best = seeds.passed(owner="ada", author="ada")
    http.patch(f"/api/v1/keys/{keys.ids['ada']}", json={"submissions_per_day": 1}, headers=keys["root"])
    withdrawal = f"/api/v1/submissions/{best}/withdrawal"
    http.put(withdrawal, json={"reason": "it reads the clock"}, headers=keys["root"]).raise_for_status()
    http.delete(withdrawal, headers=keys["root"]).raise_for_status()
    http.delete(f"/api/v1/keys/{keys.ids['ada']}", headers=keys["root"]).raise_for_status()
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        params = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        part = http.get("/api/v1/audit", params=params, headers=keys["root"]).json()
        found += part["items"]
        cursor = part["next_cursor"]
        if cursor is None:
            break
    done = [(event["actor"], event["action"]) for event in found if event["action"] != "admin.request"]
    assert done == [
        ("root", "key.revoked"),
        ("root", "submission.reinstated"),
        ("root", "submission.withdrawn"),
        ("root", "key.limited"),
        ("a test", "key.created"),
        ("a test", "key.created"),
    ]
    limited = next(event for event in found if event["action"] == "key.limited")
    assert limited["details"]["after"] == {"submissions_per_day": 1}
    requests = [event for event in found if event["action"] == "admin.request"]
    assert {event["details"]["method"] for event in requests} == {"GET", "PATCH", "PUT", "DELETE"}
    assert {event["subject"] for event in requests} == {keys.ids["root"]}


def test_a_withdrawn_entry_is_on_no_leaderboard_and_its_page_says_why(
    http: httpx.Client, keys: Keyring, seeds: Seeds
) -> None:
    keys.make("root", [Scope.ADMIN])
    best = seeds.passed(owner="ada", author="ada", evaluation={"speedup": 9.0})
    seeds.passed(author="bob", source="class ModelNew: ...  # slower\n")
    path = f"/api/v1/submissions/{best}"
    answer = http.put(f"{path}/withdrawal", json={"reason": "it reads <the> clock"}, headers=keys["root"]).json()
    assert answer["withdrawal"]["by"] == "root"
    public = http.get(path).json()["withdrawal"]
    assert (public["reason"], public["by"]) == ("it reads <the> clock", None)

    def authors() -> list[str]:
        board = http.get("/api/v1/leaderboard", params={"problem": "relu"}).json()
        file = http.get("/api/v1/leaderboard", params={"problem": "relu", "format": "csv"}).text
        listed = [entry["author"] for entry in board["entries"]]
        assert [row["author"] for row in csv.DictReader(io.StringIO(file, newline=""))] == listed
        return listed

    assert authors() == ["bob"]
    assert "it reads &lt;the&gt; clock" in page(http, f"/submissions/{best}")
    http.delete(f"{path}/withdrawal", headers=keys["root"]).raise_for_status()
    assert authors() == ["ada", "bob"]
    waiting = seeds.submit()
    body = {"reason": "why not"}
    assert_problem(http.put(f"/api/v1/submissions/{waiting}/withdrawal", json=body, headers=keys["root"]), 409)


def test_what_is_too_much_in_a_minute_is_refused_until_the_next(http: httpx.Client, keys: Keyring) -> None:
    keys.make("ada", requests_per_min=3)
    answers = [http.get("/api/v1/problems", headers=keys["ada"]) for _ in range(3)]
    left = [answer.headers["ratelimit"].partition(";t=")[0] for answer in answers]
    answer = http.get("/api/v1/problems", headers=keys["ada"])
    if left == ['"minute";r=2', '"minute";r=1', '"minute";r=0']:  # not where a minute ended meanwhile
        assert_problem(answer, 429)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    keys.make("bob", requests_per_min=0)
    assert {"ratelimit", "ratelimit-policy"}.isdisjoint(http.get("/api/v1/problems", headers=keys["bob"]).headers)
    assert http.get("/api/v1/problems").headers["ratelimit-policy"] == '"minute";q=30;w=60'
    # A probe must not be told to come back later.
    assert {http.get("/healthz").status_code for _ in range(40)} == {200}


def test_processes_share_what_they_count(services: Services, transport: AppTransport) -> None:
    minute = [600.0]
    one, other = (Meter(services.sessions, now=lambda: minute[0]) for _ in range(2))
    for meter in (one, other, one):
        meter.charge("key:a", 3)
        asyncio.run(meter.exchange())
    with pytest.raises(TooManyRequests) as refused:
        one.charge("key:a", 3)
    headers = {"RateLimit-Policy": '"minute";q=3;w=60', "RateLimit": '"minute";r=0;t=60'}
    assert refused.value.headers == {"Retry-After": "60", **headers}
    assert one.charge("key:b", 3).remaining == 2
    minute[0] += 60
    assert one.charge("key:a", 3).remaining == 2


def test_a_key_says_when_it_was_used_last(http: httpx.Client, keys: Keyring, services: Services) -> None:
    keys.make("ada")
    http.get("/api/v1/problems", headers=keys["ada"])
    asyncio.run(services.meter.exchange())
    with services.readers() as session:
        assert session.get_one(ApiKey, keys.ids["ada"]).last_used_at is not None


def test_the_quota_of_a_day_is_exact_and_of_a_key(http: httpx.Client, keys: Keyring) -> None:
    keys.make("ada")
    keys.make("bob", submissions_per_day=0)
    replayed = {**keys["ada"], "Idempotency-Key": "once"}
    for _ in range(3):
        assert submit(http, replayed).status_code == 202
    lines = {"submissions": [CODE, CODE, {"code": 1}]}
    assert http.post("/api/v1/batches", json=lines, headers=keys["ada"]).status_code == 202
    # Three are left of five less one and two: what does not fit is not begun, and not counted either.
    too_many = http.post("/api/v1/batches", json={"submissions": [CODE] * 3}, headers=keys["ada"])
    problem = assert_problem(too_many, 429)
    assert str(problem["type"]).endswith("quota-exceeded")
    assert int(too_many.headers["retry-after"]) <= 24 * 3600
    for _ in range(2):
        assert submit(http, keys["ada"]).status_code == 202
    assert_problem(submit(http, keys["ada"]), 429)
    assert submit(http, replayed).status_code == 202
    assert all(submit(http, keys["bob"]).status_code == 202 for _ in range(7))


def test_a_browser_signs_in_with_a_key_and_out_again(http: httpx.Client, keys: Keyring, services: Services) -> None:
    keys.make("ada")
    home = page(http, "/")
    assert '<textarea name="text"' not in home
    assert 'href="/sign-in"' in home
    assert http.post("/sign-in", content="key=kj_none", headers=FORM).status_code == 401
    foreign = {**FORM, "Sec-Fetch-Site": "cross-site"}
    assert http.post("/sign-in", content=f"key={keys.tokens['ada']}", headers=foreign).status_code == 403
    for then, leads_to in (("/problems/relu", "/problems/relu"), ("//evil.example/", "/"), ("https://evil/", "/")):
        answer = http.post("/sign-in", content=f"key={keys.tokens['ada']}&then={then}", headers=FORM)
        assert (answer.status_code, answer.headers["location"]) == (303, leads_to)
    cookie = answer.headers["set-cookie"]
    assert keys.tokens["ada"] not in cookie
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    home = page(http, "/")
    assert '<textarea name="text"' in home
    assert "Signed in as" in home
    typed = "problem=relu&text=class ModelNew: ...&visibility=private"
    answer = http.post("/submissions", content=typed, headers=FORM)
    assert answer.status_code == 303
    own = answer.headers["location"]
    assert "Private" in page(http, own)
    assert http.get(f"/api/v1{own}").json()["owner"] == "ada"
    # A cookie changes nothing over the API: whatever has made the browser send it.
    assert http.delete(f"/api/v1{own}").status_code == 401
    http.post("/sign-out", content="", headers=FORM)
    http.cookies.clear()
    page(http, own, 404)


def test_over_https_the_cookie_is_for_https(transport: AppTransport, keys: Keyring) -> None:
    keys.make("ada")
    with httpx.Client(transport=transport, base_url="https://testserver") as client:
        answer = client.post("/sign-in", content=f"key={keys.tokens['ada']}", headers=FORM)
    assert "Secure" in answer.headers["set-cookie"].split("; ")


def test_who_has_signed_in_is_out_when_the_key_is_revoked(http: httpx.Client, keys: Keyring) -> None:
    keys.make("root", [Scope.ADMIN])
    keys.make("ada")
    http.post("/sign-in", content=f"key={keys.tokens['ada']}", headers=FORM)
    assert "Signed in as" in page(http, "/")
    http.delete(f"/api/v1/keys/{keys.ids['ada']}", headers=keys["root"])
    assert "Signed in as" not in page(http, "/")


def test_where_reading_is_not_public_everything_takes_a_key(api_settings: Settings) -> None:
    app = create_app(api_settings.model_copy(update={"public_read": False}))
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        keyring = Keyring(_sessions(app))
        keyring.make("reader", [Scope.READ])
        for path in ("/api/v1/problems", "/api/v1/leaderboard?problem=relu", "/metrics", "/api/v1/submissions"):
            assert_problem(http.get(path), 401)
            assert http.get(path, headers=keyring["reader"]).status_code == 200
        assert http.get("/healthz").status_code == http.get("/readyz").status_code == 200
        assert 'name="key"' in page(http, "/", 401)


def _sessions(app: Any) -> sessionmaker[Session]:
    services: Services = app.state.services
    return services.sessions
