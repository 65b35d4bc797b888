"""Boards: a problem's under its filters, the one over many problems, batches, workers; and what they cost."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import httpx
import pyarrow.parquet
import pytest
from sqlalchemy import event

from api.labels import MEANINGS, VERDICTS
from api.services.container import Services
from evaluator.evaluation import Gradients, Interval, Verdict
from tests.api.outline import page
from tests.api.seeds import Seeds, failed, passed

TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.fixture
def queries(http: httpx.Client, services: Services) -> Callable[[str], int]:
    """How many statements a page sends."""
    statements: list[str] = []
    event.listen(services.read_engine, "before_cursor_execute", lambda *given: statements.append(given[2]))

    def count(path: str) -> int:
        statements.clear()
        page(http, path)
        return len(statements)

    return count


def board(html: str) -> list[tuple[str, str]]:
    """Place and label of each row of a leaderboard."""
    table = html.partition('class="ranking stack"')[2].partition("</table>")[0]
    rows = re.findall(r'class="number rank">(.*?)</td>.*?<bdi>(.*?)</bdi>', table, re.DOTALL)
    return [(re.sub(r"<[^>]+>", "", place), label) for place, label in rows]


def rank(seeds: Seeds, label: str, low: float, high: float, **changes: object) -> str:
    evaluation = {"speedup": (low + high) / 2, "speedup_interval": Interval(low, high)}
    return seeds.passed(source=f"class ModelNew: a = '{label}'", label=label, evaluation=evaluation, **changes)


def test_whose_intervals_overlap_share_a_place(http: httpx.Client, seeds: Seeds) -> None:
    rank(seeds, "first", 3.0, 3.4)
    rank(seeds, "level with it", 2.8, 3.1)
    rank(seeds, "below", 2.0, 2.5)
    rank(seeds, "last", 1.0, 1.1)
    rank(seeds, "as last", 0.9, 1.05)
    html = page(http, "/problems/relu")
    assert board(html) == [("1=", "first"), ("1=", "level with it"), ("3", "below"), ("4=", "last"), ("4=", "as last")]
    assert html.count('<svg class="interval"') == 5


def test_places_go_on_on_the_next_rows(http: httpx.Client, seeds: Seeds) -> None:
    for number in range(52):
        rank(seeds, f"c{number}", 100.0 - number, 100.4 - number)
    rank(seeds, "level with c50", 49.9, 50.1)
    first = page(http, "/problems/relu")
    assert len(board(first)) == 50
    assert 'href="?after=50#leaderboard">The next ones' in first
    assert board(page(http, "/problems/relu?after=50")) == [("51=", "c50"), ("51=", "level with c50"), ("53", "c51")]


def test_a_leaderboard_is_filtered_by_its_address(http: httpx.Client, seeds: Seeds) -> None:
    rank(seeds, "by ann", 3.0, 3.1, author="ann")
    rank(seeds, "by bob", 2.0, 2.1, author="bob")
    rank(seeds, "compiled", 1.0, 1.1, author="ann", baseline="compile")
    assert [label for _, label in board(page(http, "/problems/relu"))] == ["by ann", "by bob"]
    assert board(page(http, "/problems/relu?author=bob")) == [("1", "by bob")]
    assert board(page(http, "/problems/relu?label=by+ann&author=")) == [("1", "by ann")]
    assert board(page(http, "/problems/relu?baseline=compile")) == [("1", "compiled")]
    for nobody in ("author=nobody", "precision=float16", "size=full", "track=training&label=x"):
        assert "No entry matches these filters" in page(http, f"/problems/relu?{nobody}")


def test_a_board_shows_compile_and_roofline_and_how_it_came_about(http: httpx.Client, seeds: Seeds) -> None:
    for number, speedup in enumerate((1.5, 1.2, 2.5)):
        evaluation = {"speedup": speedup, "speedup_compiled": 1.25, "roofline_share": 0.625}
        seeds.passed(source=f"class ModelNew: a = {number}", label=f"c{number}", author="ann", evaluation=evaluation)
    seeds.evaluate(seeds.submit(), failed(seeds.problems["relu"], Verdict.WRONG_OUTPUT, "no"))
    # Of another tier, and so in no count here.
    seeds.evaluate(seeds.submit(tier="check"), failed(seeds.problems["relu"], Verdict.WRONG_OUTPUT, "no"))
    html = page(http, "/problems/relu")
    assert f"1.25{TIMES}" in html
    assert "62 %" in html
    records = html.partition("Records as a table")[2].partition("</table>")[0]
    assert re.findall(r"<bdi>(c\d)</bdi>", records) == ["c2", "c0"]
    breakdown = html.partition("Submissions of the tier full by verdict")[2].partition("</table>")[0]
    assert re.findall(r"tier=full&amp;verdict=(\w+)", breakdown) == ["passed", "wrong_output"]
    assert re.findall(r'class="number">(\d+)<', breakdown) == ["3", "1"]


def test_a_board_can_be_had_as_a_file(http: httpx.Client, seeds: Seeds) -> None:
    rank(seeds, "=1+1", 2.0, 2.1)
    html = page(http, "/problems/relu")
    address = re.search(r'href="(/api/v1/leaderboard[^"]*format=csv)"', html)
    assert address is not None
    answer = http.get(address[1].replace("&amp;", "&"))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    header, row = answer.text.splitlines()
    assert header.startswith("rank,submission,author,label,speedup,")
    assert "speedup_compiled,roofline_share" in header
    assert ",'=1+1," in row


def test_a_baseline_has_a_board_of_its_own_in_the_api(http: httpx.Client, seeds: Seeds) -> None:
    rank(seeds, "compiled", 1.0, 1.1, baseline="compile")
    params = {"problem": "relu", "device": "cpu", "baseline": "compile"}
    answer = http.get("/api/v1/leaderboard", params=params).json()
    assert [entry["label"] for entry in answer["entries"]] == ["compiled"]
    assert http.get("/api/v1/leaderboard", params={**params, "baseline": "eager"}).json()["entries"] == []


def test_a_batch_as_parquet_has_the_same_types_before_anything_is_over(http: httpx.Client, seeds: Seeds) -> None:
    lines = b"".join(b'{"problem": "relu", "code": "class ModelNew: ...  # %d"}\n' % number for number in range(2))
    batch = http.post("/api/v1/batches", content=lines, headers={"Content-Type": "application/x-ndjson"}).json()
    answer = http.get(f"{batch['links']['results']}?format=parquet")
    assert answer.status_code == 200
    table = pyarrow.parquet.read_table(io.BytesIO(answer.content))
    assert table["line"].to_pylist() == [1, 2]
    assert table["speedup"].to_pylist() == [None, None]
    assert str(table.schema.field("speedup").type) == "double"
    assert str(table.schema.field("finished").type) == "timestamp[us, tz=UTC]"


def test_parquet_is_a_file_or_an_error_in_words(
    http: httpx.Client, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank(seeds, "one", 2.0, 2.1)
    params = {"problem": "relu", "device": "cpu", "format": "parquet"}
    table = pyarrow.parquet.read_table(io.BytesIO(http.get("/api/v1/leaderboard", params=params).content))
    assert table["label"].to_pylist() == ["one"]
    assert "format=parquet" in page(http, "/problems/relu")
    # As where the extra is not installed.
    monkeypatch.setattr("api.services.exports.parquet_is_there", lambda: False)
    answer = http.get("/api/v1/leaderboard", params=params)
    assert answer.status_code == 422
    assert "pyarrow is not installed" in answer.json()["detail"]


def test_the_overall_board_ranks_by_fast_1_then_by_the_mean(
    http: httpx.Client, seeds: Seeds, services: Services
) -> None:
    total = sum(problem.refusal is None for problem in services.problems.values())
    for author, problem, speedup in (
        ("few but fast", "relu", 8.0), ("many", "relu", 1.5), ("many", "gelu", 1.5), ("slow", "relu", 0.5),
        ("many", "gelu", 1.25), (None, "softmax", 9.0),
    ):  # fmt: skip
        source = f"class ModelNew: a = {speedup}"
        seeds.passed(problem, source=source, author=author, evaluation={"speedup": speedup})
    html = page(http, "/overall")
    assert [label for _, label in board(html)] == ["many", "few but fast", "slow"]
    assert f"2 of {total}" in html
    assert f"1.50{TIMES}" in html
    level = page(http, "/overall?problems=level+1")
    assert board(level)[0] == ("1", "few but fast")
    assert "No named author is ranked here yet" in page(http, "/overall?track=training&problems=level+2")


def test_only_matching_gradients_count_in_training(http: httpx.Client, seeds: Seeds) -> None:
    seeds.passed(author="ann", evaluation={"speedup_training": 2.0})
    seeds.passed(author="bob", evaluation={"speedup_training": 3.0, "gradients": Gradients.PARTIAL})
    assert [label for _, label in board(page(http, "/overall?track=training"))] == ["ann"]


def test_a_batch_page_has_progress_figures_and_lines(http: httpx.Client, seeds: Seeds) -> None:
    lines = [
        {"problem": "relu", "code": f"class ModelNew: a = {number}", "label": f"line {number}"} for number in range(3)
    ]
    lines.append({"problem": "relu", "code": "nothing", "label": "invalid"})
    batch = http.post("/api/v1/batches", json={"name": "a step", "submissions": lines}).json()["id"]
    rows = http.get("/api/v1/submissions").json()["items"]
    for row in rows:
        if row["status"] == "queued" and row["label"] != "line 2":
            evaluation = passed(seeds.problems["relu"], speedup=1.5 if row["label"] == "line 0" else 0.5)
            seeds.evaluate(row["id"], evaluation)
    html = page(http, f"/batches/{batch}")
    for words in ("a step", "3 of 4 are over", "fast_p over p", "pass@1", "100 %", "no valid source", "line 2"):
        assert words in html, words
    # One problem, which is solved: Wilson's interval of 1 of 1.
    assert html.count("21 \N{EN DASH} 100 %") >= 2
    assert 'data-live="2"' in html
    only = page(http, f"/batches/{batch}?verdict=invalid_source").partition('id="lines"')[2]
    assert ">invalid</bdi>" in only
    assert ">line 0</bdi>" not in only
    assert "No line is like this" in page(http, f"/batches/{batch}?label=nothing")
    assert "a step" in page(http, "/batches")
    table = http.get(f"/api/v1/batches/{batch}/results?format=csv").text.splitlines()
    assert [line.partition(",")[0] for line in table] == ["line", "1", "2", "3", "4"]


def test_the_page_of_workers_says_who_does_what(http: httpx.Client, seeds: Seeds) -> None:
    assert "No worker is running" in page(http, "/workers")
    seeds.worker("w1", "evaluate", "evaluate.cpu", "cpu", device_name="a processor")
    seeds.fault(seeds.claim_build(seeds.submit()), "the builder <died>")
    seeds.submit()
    html = page(http, "/workers")
    for words in ("w1", "alive", "a processor", "evaluate.cpu", "To be compiled, cpu", "the builder &lt;died&gt;"):
        assert words in html, words


@pytest.mark.parametrize("path", ["/batches", "/overall", "/submissions"])
def test_what_is_empty_says_what_to_do_next(http: httpx.Client, path: str) -> None:
    html = page(http, path)
    assert 'class="empty"' in html
    assert "kerneljudge grade" in html or 'href="/#hand-in"' in html


def test_the_method_has_every_verdict_in_words(http: httpx.Client) -> None:
    html = page(http, "/method")
    for verdict, words in VERDICTS.items():
        assert f'<td>{words}</td><td class="spare"><code>{verdict}</code></td>' in html
        assert MEANINGS[verdict].replace("'", "&#39;") in html


def test_the_api_page_has_every_call(http: httpx.Client) -> None:
    html = page(http, "/docs")
    for path in http.get("/openapi.json").json()["paths"]:
        assert path in html


@pytest.mark.parametrize(
    "path",
    ["/", "/problems/relu", "/problems/relu?after=1", "/overall", "/submissions", "/batches/{batch}", "/workers"],
)
def test_a_page_costs_as_many_queries_however_much_is_on_it(
    http: httpx.Client, seeds: Seeds, queries: Callable[[str], int], path: str
) -> None:
    def more(numbers: range) -> str:
        lines = [{"problem": "relu", "code": f"nothing {number}"} for number in numbers]
        for number in numbers:
            for problem in ("relu", "gelu"):
                source = f"class ModelNew: a = {number}"
                seeds.passed(problem, source=source, author=f"a{number}", evaluation={"speedup": 1.0 + number})
            seeds.worker(f"w{number}", "evaluate", "evaluate.cpu", "cpu")
            seeds.fault(seeds.claim_build(seeds.submit()), "the builder died")
        return str(http.post("/api/v1/batches", json={"submissions": lines}).json()["id"])

    few = queries(path.format(batch=more(range(2))))
    many = queries(path.format(batch=more(range(2, 20))))
    assert few == many <= 14
