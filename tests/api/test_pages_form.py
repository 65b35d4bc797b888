"""The form that a candidate is handed in with, as a browser without scripts sends it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.app import create_app
from runtime.settings import Settings
from tests.api.conftest import PROBLEMS
from tests.api.inmemory import running
from tests.api.outline import check, page
from tests.api.seeds import SOURCE, Seeds

ANSWER = f"Here you are:\n\n```python\n{SOURCE}```\nI hope that it helps."


def send(http: httpx.Client, headers: dict[str, str] | None = None, **form: str) -> httpx.Response:
    fields = {"problem": "relu", "text": SOURCE, "author": "", "label": "", "device": ""} | form
    return http.post("/submissions", data=fields, headers={"Accept": "text/html", **(headers or {})})


@pytest.fixture
def small_http(tmp_path: Path) -> Iterator[httpx.Client]:
    """A service whose queue takes two submissions."""
    app = create_app(Settings(data_dir=tmp_path / "data", problems_dir=PROBLEMS, port=0, max_queued=2))
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        yield http


def test_a_full_queue_gives_back_what_was_pasted(small_http: httpx.Client) -> None:
    answers = [send(small_http, author="ann", text=f"{SOURCE}# {number}\n") for number in range(3)]
    assert [answer.status_code for answer in answers] == [303, 303, 429]
    assert int(answers[-1].headers["retry-after"]) > 0
    assert "the queue is full" in answers[-1].text
    assert "# 2\n</textarea>" in answers[-1].text


def test_what_is_pasted_is_handed_in_and_can_be_watched(http: httpx.Client) -> None:
    answer = send(http, author=" ann ", label="fused", device="cpu")
    assert answer.status_code == 303
    html = page(http, answer.headers["location"])
    assert "<bdi>fused</bdi>" in html
    assert "data-events=" in html
    assert '<noscript><meta http-equiv="refresh"' in html
    record = http.get("/api/v1" + answer.headers["location"]).json()
    assert (record["problem"], record["author"], record["label"], record["device"]) == ("relu", "ann", "fused", "cpu")


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (SOURCE, SOURCE),
        (SOURCE.replace("\n", "\r\n"), SOURCE),
        (ANSWER, SOURCE),
        (
            'class ModelNew:\n    """\n```\nnot an answer\n```\n"""\n',
            'class ModelNew:\n    """\n```\nnot an answer\n```\n"""\n',
        ),
    ],
)
def test_source_and_answers_are_told_apart(http: httpx.Client, text: str, source: str) -> None:
    location = send(http, text=text).headers["location"]
    assert http.get(f"/api/v1{location}/source").text.strip() == source.strip()
    assert http.get(f"/api/v1{location}").json()["status"] == "queued"


def test_what_is_no_candidate_gets_its_verdict_at_once(http: httpx.Client) -> None:
    html = page(http, send(http, text="class ModelNew:\n  def forward(self x): ...").headers["location"])
    assert "no valid source" in html
    assert re.search(r'<span id="L2" data-n="2" class="error">', html)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"text": "  \n"}, "There is nothing to grade yet"),
        ({"problem": "no such"}, "no problem"),
        ({"device": "abacus"}, "device"),
        ({"author": "a" * 201}, "author"),
    ],
)
def test_what_is_wrong_with_a_form_is_said_beside_it(http: httpx.Client, form: dict[str, str], words: str) -> None:
    answer = send(http, **{"label": "kept", **form})
    assert answer.status_code == 422
    check(answer.text)
    alert = re.search(r'role="alert"><bdi>(.*?)</bdi>', answer.text)
    assert alert is not None
    assert words in alert[1]
    assert 'value="kept"' in answer.text
    if "text" not in form:
        assert "class ModelNew" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://testserver"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
    ],
)
def test_a_form_of_another_site_is_refused(http: httpx.Client, headers: dict[str, str]) -> None:
    answer = send(http, headers)
    assert answer.status_code == 403
    assert "sent from another site" in answer.text
    assert http.get("/api/v1/submissions").json()["items"] == []


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://testserver"}, {"Sec-Fetch-Site": "none"}, {}]
)
def test_a_form_of_our_own_is_taken(http: httpx.Client, headers: dict[str, str]) -> None:
    assert send(http, headers).status_code == 303


def test_only_a_form_is_taken(http: httpx.Client) -> None:
    assert http.post("/submissions", json={"problem": "relu"}).status_code == 415
    many = "&".join(f"a{number}=1" for number in range(50))
    answer = http.post("/submissions", content=many, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 422


def test_a_page_may_only_load_what_is_ours(http: httpx.Client, seeds: Seeds) -> None:
    policy = dict(part.strip().split(" ", 1) for part in http.get("/").headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src", "form-action")} == {"'self'"}
    assert {policy[name] for name in ("base-uri", "frame-ancestors")} == {"'none'"}


def test_a_page_and_all_that_it_loads_is_small(http: httpx.Client, seeds: Seeds) -> None:
    for number in range(60):
        seeds.passed(source=f"class ModelNew: a = {number}", label="a name " * 20, author="an author " * 15)
    for path in ("/", "/problems/relu", "/submissions", "/overall", "/docs", "/method"):
        html = page(http, path)
        fetched = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', html))
        assert len(fetched) >= 3
        total = len(html.encode()) + sum(len(http.get(value).content) for value in fetched)
        assert total < 150_000, path
