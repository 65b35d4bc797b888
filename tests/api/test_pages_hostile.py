"""Pages with what nobody well-meaning types: markup, marks that turn the direction of writing, endless lines."""

from __future__ import annotations

import httpx
import pytest

from api.pages.source import changes, listing, visible
from evaluator.evaluation import Verdict
from tests.api.outline import check, page
from tests.api.seeds import Seeds, failed

HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(1)>{{7*7}}"""
TURNED = "\u202eevil\u2066 name"
ENDLESS = "x" * 100_000


def test_endless_lines_leave_a_page_of_bounded_size(http: httpx.Client, seeds: Seeds) -> None:
    source = f"class ModelNew: ...\n# {ENDLESS}\n" + f"y = '{ENDLESS}'\n"
    evaluation = failed(
        seeds.problems["relu"],
        Verdict.RUNTIME_ERROR,
        f"TypeError: {ENDLESS}\n  candidate.py, line 3, in forward: y = 1",
        log=ENDLESS * 3,
        details={"anything": ENDLESS},
        environment={"device_name": "a processor", "anything": ENDLESS},
    )
    submission_id = seeds.evaluate(seeds.submit(source=source), evaluation)
    html = page(http, f"/submissions/{submission_id}")
    assert "x" * 13_000 not in html
    assert f'href="/api/v1/submissions/{submission_id}/source"' in html
    assert f'href="/api/v1/submissions/{submission_id}/log"' in html
    for path in ("/", "/submissions"):
        page(http, path)


def test_many_lines_leave_a_page_of_bounded_size(http: httpx.Client, seeds: Seeds) -> None:
    source = "class ModelNew: ...\n" + "a = '<&>'\n" * 20_000
    html = page(http, f"/submissions/{seeds.passed(source=source, author='ann')}")
    assert "of 20\N{NARROW NO-BREAK SPACE}001 lines are shown" in html
    html = page(http, f"/submissions/{seeds.passed(source=source + '# more', author='ann')}?against=previous")
    assert "too long to be compared" in html


def test_the_line_at_fault_is_shown_however_far_down(http: httpx.Client, seeds: Seeds) -> None:
    source = "class ModelNew: ...\n" + "".join(f"a_{number} = 1\n" for number in range(2, 3000))
    message = "TypeError: no\n  candidate.py, line 2500, in forward: a_2500 = 1"
    evaluation = failed(seeds.problems["relu"], Verdict.RUNTIME_ERROR, message)
    html = page(http, f"/submissions/{seeds.evaluate(seeds.submit(source=source), evaluation)}")
    assert '<span id="L2500" data-n="2500" class="error">a_2500 = 1<em>TypeError: no</em>' in html
    assert 'href="#L2500"' in html


def test_marks_that_turn_the_direction_are_shown_as_what_they_are(http: httpx.Client, seeds: Seeds) -> None:
    source = f"class ModelNew: ...\nname = '{TURNED}'\n"
    html = page(http, f"/submissions/{seeds.passed(source=source, label=TURNED, author=TURNED)}")
    code = html.partition('class="source"')[2].partition("</code>")[0]
    assert "⟦U+202E⟧evil⟦U+2066⟧" in code
    assert "\u202e" not in code
    # In names they stay, but cannot turn what comes after the name.
    assert f"<bdi>{TURNED}</bdi>" in html


def test_every_page_escapes_what_was_typed(http: httpx.Client, seeds: Seeds) -> None:
    evaluation = {"message": HOSTILE, "environment": {"device_name": HOSTILE}, "notes": (HOSTILE,)}
    parent = seeds.passed(label=HOSTILE, author=HOSTILE, metadata={HOSTILE: HOSTILE}, evaluation=evaluation)
    seeds.passed(label=HOSTILE, author=HOSTILE, parent=parent)
    seeds.passed(source=f"class ModelNew: '''{HOSTILE}'''", label=HOSTILE, author=HOSTILE, evaluation=evaluation)
    body = {
        "name": HOSTILE,
        "submissions": [{"problem": "relu", "code": HOSTILE, "label": HOSTILE}, {"problem": HOSTILE}],
    }
    batch = http.post("/api/v1/batches", json=body).json()["id"]
    submission = http.post("/api/v1/submissions", json={"problem": "relu", "code": HOSTILE}).json()["id"]
    for path in (
        "/overall", "/submissions", f"/submissions/{submission}", "/batches", f"/batches/{batch}",
        "/problems/relu", f"/problems/relu?author={HOSTILE}&label={HOSTILE}&device={HOSTILE}",
        f"/submissions?author={HOSTILE}", f"/submissions/{parent}", f"/submissions?parent={HOSTILE}",
        f"/batches/{batch}/comparison", f"/batches/{batch}/comparison?other={batch}",
    ):  # fmt: skip
        html = page(http, path)
        assert "<img src=x" not in html, path
        assert "onerror=alert(1)>{{" not in html, path
        assert "49" not in html.partition("onerror=alert(1)&gt;")[2][:4]


def test_a_form_with_anything_in_it_comes_back_escaped(http: httpx.Client) -> None:
    form = {"problem": HOSTILE, "text": f"</textarea>{HOSTILE}", "author": HOSTILE, "label": TURNED, "device": "cpu"}
    answer = http.post("/submissions", data=form, headers={"Accept": "text/html"})
    assert answer.status_code == 422
    check(answer.text)
    assert "<img src=x" not in answer.text
    assert "&lt;/textarea&gt;&lt;script&gt;" in answer.text


@pytest.mark.parametrize("text", ["", "plain", "tab\tand ünïcödé"])
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_a_listing_has_every_line_of_a_short_source() -> None:
    found = listing("a\n\nb\n")
    assert [(line.number, line.text) for line in found.lines] == [(1, "a"), (2, ""), (3, "b")]
    assert found.whole


def test_changes_are_told_by_kind() -> None:
    assert changes("a\nb\n", "a\nc\n") == (
        ("place", "@@ -1,2 +1,2 @@"),
        ("same", " a"),
        ("remove", "-b"),
        ("add", "+c"),
    )
    assert changes("a\n", "a\n") == ()
