"""Pages: what they say, and that nothing which somebody typed is markup in them."""

from __future__ import annotations

import re

import httpx
import pytest
from sqlalchemy import event

from api.labels import FLAGS, UNMEASURED, VERDICTS, interval, machine, milliseconds, size_of, times
from api.services.container import Services
from evaluator.evaluation import SpeedupStatus, Verdict
from evaluator.flags import Flag, FlagKind
from kerneljudge.records import IntervalRecord
from tests.api.outline import page
from tests.api.seeds import Seeds, failed

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(1)>{{7*7}}"""


def ranked(html: str) -> list[str]:
    """The labels on the leaderboard of a page, in order."""
    board = html.partition('class="ranking stack"')[2].partition("</table>")[0]
    return re.findall(r'<a href="/submissions/[^"]+"><bdi>(.*?)</bdi>', board)


def test_an_empty_service_says_what_to_do_next(http: httpx.Client, services: Services) -> None:
    html = page(http, "/")
    assert html.count("There is no leader anywhere yet") == 1
    for problem in services.problems:
        assert f'<li><a href="/problems/{problem}"' in html
    assert "curl -s" in html
    assert "http://testserver/api/v1/submissions" in html
    assert "No worker is running" in html


def test_the_front_page_ranks_and_lists(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.passed(author="ann", label="fused")
    seeds.evaluate(
        seeds.submit(label="bad"), failed(seeds.problems["relu"], Verdict.WRONG_OUTPUT, "element (3, 5) is 1, not 0")
    )
    seeds.worker("w1", "evaluate", "evaluate.cpu", "cpu")
    html = page(http, "/")
    for words in (
        "fused",
        "by <bdi>ann</bdi>",
        f"2.00{TIMES}",
        "a processor",
        "wrong output",
        "element (3, 5)",
    ):
        assert words in html, words
    assert f'href="/submissions/{submission_id}"' in html
    assert "No candidate is ranked here yet" not in html


@pytest.mark.parametrize(
    ("status", "is_drawn"),
    [(SpeedupStatus.UNSETTLED, True), (SpeedupStatus.NOT_VETTED, False)],
)
def test_calls_are_drawn_without_a_figure_where_noise_is_the_reason(
    http: httpx.Client, seeds: Seeds, status: SpeedupStatus, is_drawn: bool
) -> None:
    unmeasured = {"speedup": None, "speedup_interval": None, "latency_ms": None, "speedup_status": status}
    html = page(http, f"/submissions/{seeds.passed(evaluation=unmeasured)}")
    assert UNMEASURED[status] in html
    assert ("How long calls took" in html) is is_drawn
    assert ("too noisy to tell a figure from these calls" in html) is is_drawn


def test_the_front_page_has_the_leader_of_each_problem_and_device(http: httpx.Client, seeds: Seeds) -> None:
    for label, problem, device_name, speedup in (
        ("slow", "relu", "a processor", 1.25),
        ("fast", "relu", "a processor", 3.25),
        ("elsewhere", "relu", "another one", 1.75),
        ("attentive", "causal_attention", "a processor", 2.25),
    ):
        evaluation = {"speedup": speedup, "environment": {"device_name": device_name}}
        seeds.passed(problem, source=f"class ModelNew: name = {label!r}", label=label, evaluation=evaluation)
    leading, _ = page(http, "/").split('id="submissions"')
    assert [found for found in re.findall(r"[\d.]+" + TIMES, leading) if found] == [
        f"{speedup}{TIMES}" for speedup in ("2.25", "3.25", "1.75")
    ]
    assert "slow" not in leading


def test_the_front_page_costs_as_many_queries_however_many_lead(
    http: httpx.Client, seeds: Seeds, services: Services
) -> None:
    seeds.passed()
    statements: list[str] = []
    event.listen(services.read_engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    page(http, "/")
    few = len(statements)
    for problem in ("gelu", "softmax", "gemm"):
        seeds.passed(problem)
    statements.clear()
    page(http, "/")
    assert len(statements) == few < len(services.problems)


def test_the_training_track_is_a_page_of_its_own(http: httpx.Client, seeds: Seeds) -> None:
    seeds.passed(evaluation={"speedup_training": 7.25})
    html = page(http, "/?track=training")
    assert f"7.25{TIMES}" in html
    assert re.search(r'track=training" aria-current="true"', html)


def test_a_size_shows_only_its_own_results(http: httpx.Client, seeds: Seeds) -> None:
    seeds.passed(label="only at smoke")
    board, latest = page(http, "/?size=full").split('id="submissions"')
    assert "only at smoke" not in board
    assert "only at smoke" in latest
    page(http, "/?size=%3Cscript%3E")


def test_a_submission_page_says_everything_about_it(http: httpx.Client, seeds: Seeds) -> None:
    flags = (Flag(FlagKind.UNUSED_KERNEL, 7, "nothing launches it"), Flag(FlagKind.LIBRARY_ONLY, None, "no kernel"))
    evaluation = {"notes": ("below 50 us",), "hints": ("use float4",), "details": {"worst": [1, 2]}, "flags": flags}
    html = page(http, f"/submissions/{seeds.passed(label='fused', author='ann', evaluation=evaluation)}")
    for words in (
        "passed", "outputs and gradients match", f"2.00{TIMES}", f"1.90 {DASH} 2.10",
        "1.00 ms, baseline 2.00 ms", "3 GiB",
        "below 50 us",
        "the verdict does not depend on them",
        '<strong>unused kernel</strong>, <a href="#L7">line 7</a>: nothing launches it',
        "<strong>library only</strong>: no kernel",
        "use float4", "worst", "class ModelNew", "compiled\nit ran", "a processor", "submitted", "evaluation started",
    ):  # fmt: skip
        assert words in html, words
    assert "http-equiv" not in html


def test_a_wrong_output_shows_its_worst_elements_and_their_pattern(http: httpx.Client, seeds: Seeds) -> None:
    mismatch = {
        "tensor": "the output", "shape": [4, 5], "dtype": "float32", "inputs": "signed", "wrong": 5, "total": 20,
        "nan": 1, "infinite": 0, "patterns": [{"code": "tail", "sentence": "only the <last> row is wrong"}],
        "worst": [{"index": [3, 4], "expected": 0.5, "got": "nan", "error": "nan", "allowed": 1e-4}],
    }  # fmt: skip
    evaluation = failed(seeds.problems["relu"], Verdict.WRONG_OUTPUT, "wrong", details={"mismatch": mismatch})
    html = page(http, f"/submissions/{seeds.evaluate(seeds.submit(), evaluation)}")
    for words in (
        "The output, float32[4, 5], inputs signed: 5 of 20 elements are wrong, 1 of them NaN.",
        "Only the &lt;last&gt; row is wrong.",
        "<code>[3, 4]</code>",
        ">0.5<",
        ">nan<",
        ">0.0001<",
    ):
        assert words in html, words


def test_the_page_shows_what_a_model_is_told(http: httpx.Client, seeds: Seeds) -> None:
    waiting = seeds.submit()
    assert "as a language model is given it" not in page(http, f"/submissions/{waiting}")
    evaluation = failed(seeds.problems["relu"], Verdict.RUNTIME_ERROR, f"TypeError: {HOSTILE}")
    html = page(http, f"/submissions/{seeds.evaluate(waiting, evaluation)}")
    assert "Feedback, as a language model is given it" in html
    assert "Verdict: runtime error while running forward or backward" in html


def test_the_page_shows_what_kernels_take(http: httpx.Client, seeds: Seeds) -> None:
    kernel = {
        "name": "relu<float>", "arch": "sm_90", "registers": 77, "shared_bytes": 1024, "stack_bytes": 240,
        "spill_store_bytes": 368, "spill_load_bytes": 372,
    }  # fmt: skip
    html = page(http, f"/submissions/{seeds.passed(evaluation={'details': {'kernels': [kernel]}})}")
    for words in ("relu&lt;float&gt;", ">sm_90<", ">77<", ">1024<", ">240<", ">368, 372<"):
        assert words in html, words
    assert "Wrong elements" not in html


def test_the_page_of_what_failed_says_how_to_try_again(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.submit()
    seeds.fault(seeds.claim_build(submission_id), "the builder died", final=True)
    html = page(http, f"/submissions/{submission_id}")
    assert f"curl -X POST http://testserver/api/v1/submissions/{submission_id}/retry" in html
    assert "the builder died" in html


def test_each_device_has_a_board_of_its_own(http: httpx.Client, seeds: Seeds) -> None:
    for name, label in (("this one", "first"), ("that one", "second"), ("that one", "third")):
        source = f"class ModelNew: a = '{label}'"
        seeds.passed(source=source, label=label, evaluation={"environment": {"device_name": name}})
    html = page(http, "/problems/relu")
    assert "<bdi>that one</bdi>, forward, size smoke, float32, against eager: 2 ranked" in html
    assert "first" not in ranked(html)
    assert ranked(page(http, "/problems/relu?device=this+one")) == ["first"]
    assert sorted(ranked(page(http, "/problems/relu?device=cpu"))) == ["second", "third"]
    assert "No entry matches these filters" in page(http, "/problems/relu?device=cuda")


def test_a_page_says_when_nobody_can_take_a_submission(http: httpx.Client, seeds: Seeds) -> None:
    seeds.worker("b", "build", "build", None)
    submission_id = seeds.submit(device="cuda", label="waits")
    for path in ("/", f"/submissions/{submission_id}"):
        assert "waiting for a worker for device cuda: none is running" in page(http, path)


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.PASSED])
def test_every_verdict_has_words(http: httpx.Client, seeds: Seeds, verdict: Verdict) -> None:
    html = page(http, f"/submissions/{seeds.evaluate(seeds.submit(), failed(seeds.problems['relu'], verdict, 'why'))}")
    assert VERDICTS[verdict] in html
    assert "why" in html


def test_every_kind_of_flag_has_words() -> None:
    assert set(FLAGS) == set(FlagKind)


def test_without_flags_there_is_no_section_for_them(http: httpx.Client, seeds: Seeds) -> None:
    assert 'id="flags"' not in page(http, f"/submissions/{seeds.passed()}")


def test_a_waiting_submission_renews_its_page(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.submit()
    html = page(http, f"/submissions/{submission_id}")
    assert 'http-equiv="refresh"' in html
    assert "Number 1 in its queue" in html
    seeds.show(seeds.claim_build(submission_id), "building", "kernel.cpp", 0.5)
    html = page(http, f"/submissions/{submission_id}")
    assert "building: <bdi>kernel.cpp</bdi>" in html
    assert 'value="0.5"' in html


def test_a_problem_page_shows_rules_and_reference(http: httpx.Client, seeds: Seeds) -> None:
    seeds.passed(label="fused")
    html = page(http, "/problems/relu")
    for words in ("fused", "batch_size = 4096", "level 1, problem 19", "return torch.relu(x)", "0.0001"):
        assert words in html, words


@pytest.mark.parametrize("path", ["/submissions/none", "/problems/none", "/nothing", f"/problems/{HOSTILE}"])
def test_what_is_not_there_is_a_page_with_a_way_back(http: httpx.Client, path: str) -> None:
    html = page(http, path, 404)
    assert 'href="/"' in html


def test_nothing_that_was_typed_is_markup(http: httpx.Client, seeds: Seeds) -> None:
    hostile = {
        "message": HOSTILE,
        "notes": (HOSTILE,),
        "hints": (HOSTILE,),
        "flags": (Flag(FlagKind.CONCEALS_SOURCE, 1, HOSTILE),),
        "log": HOSTILE,
        "details": {HOSTILE: HOSTILE},
        "environment": {"device_name": HOSTILE, HOSTILE: HOSTILE},
        "stage_s": {HOSTILE: 1.0},
    }
    source = f"class ModelNew: x = '''</code></pre>{HOSTILE}'''"
    submission_id = seeds.passed(source=source, label=HOSTILE, author=HOSTILE, evaluation=hostile)
    seeds.worker(HOSTILE, "evaluate", HOSTILE, HOSTILE, device_name=HOSTILE)
    for path in ("/", "/problems/relu", f"/submissions/{submission_id}"):
        html = page(http, path)
        assert "<img src=x" not in html
        assert "49" not in re.findall(r"onerror=alert\(1\)&gt;(\S\S)", html)
        assert "&lt;script&gt;" in html


def test_facts_about_a_machine_are_shown_as_words() -> None:
    facts = {"memory_bytes": 2**34, "device_name": "a processor", "cuda": None, "cores": 2}
    assert machine(facts) == {"memory": "16 GiB", "device name": "a processor", "cores": 2}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (times(None), DASH),
        (times(0.634), f"0.63{TIMES}"),
        (times(123.4), f"123{TIMES}"),
        (times(0.00345), f"0.0034{TIMES}"),
        (interval(None), ""),
        (interval(IntervalRecord(low=0.5, high=1.25, level=0.95)), f"0.50 {DASH} 1.25"),
        (interval(IntervalRecord(low=0.628, high=0.6334, level=0.95)), f"0.628 {DASH} 0.633"),
        (milliseconds(0.0123), "12.3 µs"),
        (milliseconds(1.2345), "1.23 ms"),
        (milliseconds(0.6), "0.600 ms"),
        (milliseconds(123.4), "123 ms"),
        (milliseconds(999.9), "1.00 s"),
        (milliseconds(2500.0), "2.50 s"),
        (size_of(None), DASH),
        (size_of(512), "512 bytes"),
        (size_of(6 * 2**30), "6 GiB"),
    ],
)
def test_figures_are_short(text: str, wanted: str) -> None:
    assert text == wanted


def test_what_cannot_be_asked_for_is_said_in_words(http: httpx.Client) -> None:
    html = page(http, "/submissions?verdict=none", 422)
    assert "<h1>This cannot be asked for</h1>" in html
    assert "Verdict: Input should be &#39;passed&#39;" in html
    assert "enum" not in html
    assert "<h1>There is nothing here</h1>" in page(http, "/nothing", 404)
    # A browser sends a field that was left empty.
    page(http, "/submissions?verdict=&problem=")
