"""Leaderboards as JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import io

import httpx
import pyarrow.parquet
import pytest
from sqlalchemy import event

from api.services.container import Services
from evaluator.evaluation import Gradients, Verdict
from tests.api.conftest import assert_problem, fields
from tests.api.seeds import Seeds, failed

URL = "/api/v1/leaderboard"


def ranked(http: httpx.Client, **params: object) -> list[dict[str, object]]:
    answer = http.get(URL, params={"problem": "relu", **{name: str(value) for name, value in params.items()}})
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, object]] = answer.json()["entries"]
    return entries


def test_the_fastest_comes_first_with_its_figures(http: httpx.Client, seeds: Seeds) -> None:
    seeds.passed(source="class ModelNew: a = 1", author="ann", evaluation={"speedup": 1.25})
    seeds.passed(source="class ModelNew: a = 2", author="bob", label="b", evaluation={"speedup": 3.5})
    seeds.evaluate(seeds.submit(), failed(seeds.problems["relu"], Verdict.WRONG_OUTPUT, "wrong"))
    entries = ranked(http)
    assert [(entry["rank"], entry["author"], entry["speedup"]) for entry in entries] == [
        (1, "bob", 3.5),
        (2, "ann", 1.25),
    ]
    assert entries[0]["speedup_training"] == 1.5
    assert entries[0]["speedup_interval"] == {"low": 0.95 * 3.5, "high": 1.05 * 3.5, "level": 0.95}
    assert (entries[0]["latency_ms"], entries[0]["device_name"]) == (1.0, "a processor")


def test_the_training_track_admits_only_matching_gradients(http: httpx.Client, seeds: Seeds) -> None:
    seeds.passed(source="class ModelNew: a = 1", evaluation={"gradients": Gradients.MISSING, "speedup_training": None})
    matching = seeds.passed(source="class ModelNew: a = 2")
    assert [entry["submission"] for entry in ranked(http, track="training")] == [matching]
    assert ranked(http, track="training")[0]["speedup"] == 1.5
    assert len(ranked(http)) == 2


def test_devices_and_sizes_are_never_mixed(http: httpx.Client, seeds: Seeds) -> None:
    seeds.passed()
    assert len(ranked(http, device="cpu", size="smoke")) == 1
    assert ranked(http, device="cuda") == []
    assert ranked(http, size="full") == []
    assert ranked(http, precision="bfloat16") == []


def test_what_is_left_out_follows_the_defaults_of_a_submission(http: httpx.Client, seeds: Seeds) -> None:
    seeds.worker("w", "evaluate", "evaluate.cuda", "cuda:0")
    board = http.get(URL, params={"problem": "relu"}).json()
    assert (board["device"], board["size"], board["precision"]) == ("cuda", "full", "float32")


def test_devices_of_different_names_are_ranked_apart(http: httpx.Client, seeds: Seeds) -> None:
    for name, speedup in (("slow", 9.0), ("quick", 2.0), ("quick", 3.0)):
        machine = {"speedup": speedup, "environment": {"device_name": name}}
        seeds.passed(source=f"class ModelNew: a = {speedup}", evaluation=machine)
    found = [(entry["device_name"], entry["rank"], entry["speedup"]) for entry in ranked(http)]
    assert found == [("quick", 1, 3.0), ("quick", 2, 2.0), ("slow", 1, 9.0)]
    assert [entry["speedup"] for entry in ranked(http, device_name="slow")] == [9.0]
    assert http.get(URL, params={"problem": "relu", "device_name": "slow"}).json()["device_name"] == "slow"
    assert ranked(http, device_name="none") == []


def test_a_board_costs_as_many_queries_however_long_it_is(http: httpx.Client, seeds: Seeds, services: Services) -> None:
    statements: list[str] = []
    event.listen(services.read_engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    counts = []
    for number in range(4):
        seeds.passed(source=f"class ModelNew: a = {number}")
        statements.clear()
        assert len(ranked(http)) == number + 1
        counts.append(len(statements))
    assert len(set(counts)) == 1


def test_a_board_is_read_in_pages(http: httpx.Client, seeds: Seeds) -> None:
    for number in range(3):
        seeds.passed(source=f"class ModelNew: a = {number}")
    first = http.get(URL, params={"problem": "relu", "limit": 2}).json()
    assert [entry["rank"] for entry in first["entries"]] == [1, 2]
    second = http.get(URL, params={"problem": "relu", "limit": 2, "cursor": first["next_cursor"]}).json()
    assert [entry["rank"] for entry in second["entries"]] == [3]
    assert second["next_cursor"] is None


def test_a_board_as_csv_runs_no_formulas(http: httpx.Client, seeds: Seeds) -> None:
    seeds.passed(author="=HYPERLINK(1)", label='a,"b"\nc')
    answer = http.get(URL, params={"problem": "relu"}, headers={"Accept": "text/csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    (row,) = csv.DictReader(io.StringIO(answer.text, newline=""))
    assert (row["rank"], row["author"], row["label"]) == ("1", "'=HYPERLINK(1)", 'a,"b"\nc')
    assert (row["speedup"], row["speedup_low"], row["speedup_high"]) == ("2.0", "1.9", "2.1")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_board_as_a_file_has_every_place_unless_fewer_are_asked_for(
    http: httpx.Client, seeds: Seeds, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr("storage.leaderboards.read._AT_ONCE", 2)
    monkeypatch.setattr("api.services.exports._ROWS_AT_ONCE", 2)
    for number in range(5):
        seeds.passed(source=f"class ModelNew: a = {number}", evaluation={"speedup": 1.0 + number})

    def places(**params: int) -> list[tuple[int, float]]:
        answer = http.get(URL, params={"problem": "relu", "format": form, **params})
        assert answer.headers["content-disposition"] == f'inline; filename="relu.{form}"'
        if form == "csv":
            rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
        else:
            rows = pyarrow.parquet.read_table(io.BytesIO(answer.content)).to_pylist()
        return [(int(row["rank"]), float(row["speedup"])) for row in rows]

    everything = [(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.0), (5, 1.0)]
    assert places() == everything
    assert places(limit=3, cursor=1) == everything[1:4]


@pytest.mark.parametrize(
    ("name", "value"), [("track", "x"), ("device", "tpu"), ("size", "huge"), ("limit", "0"), ("cursor", "-1")]
)
def test_a_bad_choice_is_refused_and_named(http: httpx.Client, name: str, value: str) -> None:
    assert fields(assert_problem(http.get(URL, params={"problem": "relu", name: value}), 422)) == {name}


def test_a_problem_must_be_named_and_known(http: httpx.Client) -> None:
    assert fields(assert_problem(http.get(URL), 422)) == {"problem"}
    assert_problem(http.get(URL, params={"problem": "none"}), 404)
