"""What vetting means for lists of problems, leaderboards and pages."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from api.services.container import Services
from evaluator.problems.loading import load_problem, save_vetting
from evaluator.problems.vetting import MEANING, NOT_VETTED, REFUSALS, Label, Vetting
from runtime.settings import Settings
from storage.vettings import record_vetting
from tests.api.conftest import PROBLEMS
from tests.api.seeds import Seeds
from tests.api.test_pages import page

REASON = REFUSALS[Label.ZEROS_PASS]
BOARD = "/api/v1/leaderboard"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Problems of the repository: ``relu`` is refused, and ``linear_relu_divide`` is not vetted."""
    folder = Path(shutil.copytree(PROBLEMS, tmp_path / "problems"))
    (folder / "linear_relu_divide" / "vetting.json").unlink()
    refuse(folder / "relu")
    return folder


@pytest.fixture
def api_settings(tmp_path: Path, folder: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", problems_dir=folder, port=0)


def refuse(problem: Path, **changes: str) -> Vetting:
    """Have ``problem`` refused because zeros pass."""
    known = load_problem(problem).vettings_at("float32")[0]
    vetting = replace(known, labels=(Label.ZEROS_PASS, Label.HALF_PASSES), refusals=(REASON,), **changes)
    save_vetting(problem, vetting)
    return vetting


def test_a_problem_says_what_was_found_and_whether_it_is_ranked(http: httpx.Client) -> None:
    listed = {item["id"]: item for item in http.get("/api/v1/problems").json()["items"]}
    for relu in (listed["relu"], http.get("/api/v1/problems/relu").json()):
        assert relu["labels"] == ["zeros_pass", "half_passes"]
        assert (relu["ranked"], relu["refusal"]) == (False, REASON)
        assert relu["vetting"]["version"] == relu["version"]
        assert relu["vetting"]["device"] == "cpu"
        assert relu["vetting"]["stale"] is False
    linear = listed["linear_relu_divide"]
    assert [linear[name] for name in ("labels", "ranked", "refusal", "vetting")] == [None, False, NOT_VETTED, None]


def test_a_refused_problem_has_the_reason_instead_of_a_leaderboard(http: httpx.Client, seeds: Seeds) -> None:
    seeds.passed("relu", label="zeros")
    seeds.passed("gemm")
    refused = http.get(BOARD, params={"problem": "relu"}).json()
    assert (refused["entries"], refused["next_cursor"], refused["refusal"]) == ([], None, REASON)
    ranked = http.get(BOARD, params={"problem": "gemm"}).json()
    assert (len(ranked["entries"]), ranked["refusal"]) == (1, None)
    table = http.get(BOARD, params={"problem": "relu"}, headers={"Accept": "text/csv"}).text
    assert len(table.splitlines()) == 1


def test_pages_say_why_a_problem_is_not_ranked(http: httpx.Client, seeds: Seeds) -> None:
    seeds.passed("relu", label="only zeros")
    for path in ("/", "/problems/relu"):
        html = page(http, path)
        assert "This problem is not ranked." in html
        assert REASON in html
    assert "only zeros" not in html
    assert MEANING[Label.HALF_PASSES] in html
    assert "No candidate is ranked here yet" not in html


def test_a_page_says_that_a_problem_was_not_vetted(http: httpx.Client) -> None:
    assert "Not vetted: whether trivial candidates pass here is tried" in page(http, "/problems/linear_relu_divide")


def test_a_stale_vetting_counts_for_nothing(folder: Path, request: pytest.FixtureRequest) -> None:
    refuse(folder / "relu", version="0123456789abcdef")
    # Only now is the application started: it reads the problems.
    http: httpx.Client = request.getfixturevalue("http")
    seeds: Seeds = request.getfixturevalue("seeds")
    relu = http.get("/api/v1/problems/relu").json()
    assert relu["labels"] is None
    assert (relu["ranked"], relu["refusal"], relu["vetting"]["stale"]) == (False, NOT_VETTED, True)
    seeds.passed("relu", label="counts for nothing")
    html = page(http, "/problems/relu")
    assert "counts for nothing" not in html
    assert "Not vetted since it was changed" in html


def test_a_page_says_what_was_vetted_on_what(http: httpx.Client) -> None:
    html = page(http, "/problems/relu")
    assert "Trivial candidates were tried on it" in html
    assert "device cpu, size smoke, float32" in html
    assert "This was found:" in html


def test_a_problem_of_the_second_folder_waits_for_its_vetting(
    tmp_path: Path, folder: Path, request: pytest.FixtureRequest
) -> None:
    imported = Path(shutil.copytree(folder / "gelu", tmp_path / "data" / "problems" / "imported"))
    (imported / "vetting.json").unlink()
    # Only now is the application started: it reads the problems.
    http: httpx.Client = request.getfixturevalue("http")
    record = http.get("/api/v1/problems/imported").json()
    assert (record["labels"], record["ranked"], record["refusal"]) == (None, False, NOT_VETTED)
    html = page(http, "/problems/imported")
    assert "Not vetted: whether trivial candidates pass" in html
    assert NOT_VETTED in html


# --- what is not vetted yet ------------------------------------------------------------------------------------------


def unvetted_with(seeds: Seeds, services: Services, *labels: Label) -> None:
    """A worker has vetted ``linear_relu_divide``."""
    problem = services.problems["linear_relu_divide"]
    refusals = tuple(REFUSALS[label] for label in labels if label in REFUSALS)
    where = {"device": "cpu", "size": "smoke", "precision": "float32", "torch": "2.9"}
    vetting = Vetting(problem.id, problem.version, **where, labels=labels, refusals=refusals, checks=())
    with seeds.sessions.begin() as session:
        record_vetting(session, vetting)


def test_nothing_says_how_fast_a_candidate_is_before_vetting_is_through(
    http: httpx.Client, seeds: Seeds, services: Services
) -> None:
    submission_id = seeds.passed("linear_relu_divide", evaluation={"speedup": 187.25, "speedup_interval": None})
    address = f"/api/v1/submissions/{submission_id}"
    record = http.get(address).json()
    assert (record["verdict"], record["speedup"], record["speedup_status"]) == ("passed", None, "not_vetted")
    assert (record["speedup_training"], record["speedup_training_status"]) == (None, "not_vetted")
    assert (record["latency_ms"], record["latency_training_ms"], record["roofline"]) == (None, None, {})
    assert record["notes"][-1] == f"no speedup: {NOT_VETTED}"
    told = re.compile(r"\b187\b")  # and no part of a time
    assert not told.search(record["feedback"])
    assert "before the problem is vetted" in record["feedback"]
    assert http.get(f"{address}/samples").status_code == 404
    listed = http.get("/api/v1/submissions").json()["items"]
    assert [item["speedup_status"] for item in listed] == ["not_vetted"]
    shown = page(http, f"/submissions/{submission_id}")
    assert "not vetted, or refused" in shown
    for html in (shown, *(page(http, path) for path in ("/problems/linear_relu_divide", "/", "/overall"))):
        assert not told.search(html)
    for accept in ("application/json", "text/csv"):
        answer = http.get(BOARD, params={"problem": "linear_relu_divide"}, headers={"Accept": accept})
        assert not told.search(answer.text)

    unvetted_with(seeds, services, Label.HALF_PASSES)
    record = http.get(address).json()
    assert (record["speedup"], record["speedup_status"]) == (187.25, "measured")
    problem = http.get("/api/v1/problems/linear_relu_divide").json()
    assert (problem["ranked"], problem["labels"]) == (True, ["half_passes"])
    (entry,) = http.get(BOARD, params={"problem": "linear_relu_divide"}).json()["entries"]
    assert entry["speedup"] == 187.25


def test_a_problem_that_a_worker_has_found_at_fault_says_why_there_is_no_speedup(
    http: httpx.Client, seeds: Seeds, services: Services
) -> None:
    submission_id = seeds.passed("linear_relu_divide")
    unvetted_with(seeds, services, Label.ZEROS_PASS)
    record = http.get(f"/api/v1/submissions/{submission_id}").json()
    assert (record["speedup"], record["speedup_status"]) == (None, "not_vetted")
    assert record["notes"][-1] == f"no speedup: {REASON}"
    board = http.get(BOARD, params={"problem": "linear_relu_divide"}).json()
    assert (board["entries"], board["refusal"]) == ([], REASON)
    for path in ("/", "/problems/linear_relu_divide"):
        assert REASON in page(http, path)
