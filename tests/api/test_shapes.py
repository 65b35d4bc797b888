"""Shapes in the API and on pages: figures at timed ones, and nothing about held-out ones."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from evaluator.evaluation import Interval, Latency, SpeedupStatus, TrackFigures
from evaluator.problems.loading import load_problem, save_vetting
from evaluator.problems.problem import Problem
from evaluator.problems.vetting import Vetting
from runtime.settings import Settings
from tests.api.conftest import PROBLEMS, assert_problem
from tests.api.outline import page
from tests.api.seeds import Seeds, passed
from tests.corpus import CANDIDATES

_TIMES = "\N{MULTIPLICATION SIGN}"
_NAME = "row_scale"
_SHAPES = """
[shapes.full.wide]
use = "timed"
values = { dim = 1024 }

[shapes.full.hidden_one]
use = "held_out"
values = { rows = 987654 }
"""
_WIDE = TrackFigures(
    speedup=3.0,
    speedup_interval=Interval(2.9, 3.1),
    speedup_status=SpeedupStatus.MEASURED,
    latency_ms=Latency(4.0, 12.0, 4.1, 12.1),
)


@pytest.fixture
def api_settings(tmp_path: Path) -> Settings:
    """An installation with a problem that has shapes, and was vetted with them."""
    folder = tmp_path / "data" / "problems" / _NAME
    shutil.copytree(CANDIDATES / "honest_row_scale_inherited" / "problem", folder)
    manifest = folder / "problem.toml"
    salt = 'held_out_salt = "0123456789abcdef"'
    manifest.write_text(f"{salt}\n{manifest.read_text(encoding='utf-8')}{_SHAPES}", encoding="utf-8")
    version = load_problem(folder).version
    save_vetting(folder, Vetting(_NAME, version, "cpu", "full", "float32", "2.13", (), (), ()))
    return Settings(data_dir=tmp_path / "data", problems_dir=PROBLEMS, port=0)


@pytest.fixture
def problem(api_settings: Settings) -> Problem:
    return load_problem(api_settings.data_dir / "problems" / _NAME)


def _submitted(seeds: Seeds, problem: Problem) -> str:
    figures = replace(
        passed(problem),
        size="full",
        speedup_mean=2.45,
        speedup_mean_interval=Interval(2.4, 2.5),
        shapes={"wide": _WIDE},
    )
    seeds.problems[_NAME] = problem
    return seeds.evaluate(seeds.submit(_NAME, size="full"), figures)


def test_the_record_has_the_figures_of_each_timed_shape_and_their_mean(
    http: httpx.Client, seeds: Seeds, problem: Problem
) -> None:
    record = http.get(f"/api/v1/submissions/{_submitted(seeds, problem)}").json()
    assert record["speedup_mean"] == 2.45
    assert record["speedup_mean_interval"] == {"low": 2.4, "high": 2.5, "level": 0.95}
    assert record["speedup_training_mean"] is None
    wide = record["shapes"]["wide"]
    assert wide["speedup"] == 3.0
    assert wide["speedup_status"] == "measured"
    assert wide["latency_ms"]["candidate"] == 4.0
    assert "roofline" not in wide


def test_the_page_of_a_submission_has_a_row_for_each_timed_shape(
    http: httpx.Client, seeds: Seeds, problem: Problem
) -> None:
    html = page(http, f"/submissions/{_submitted(seeds, problem)}")
    for words in ("Speedups by shape", "full itself", "wide", f"3.00{_TIMES}", "geometric mean", f"2.45{_TIMES}"):
        assert words in html, words


def test_a_submission_without_shapes_has_no_table_of_them(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.passed()
    assert http.get(f"/api/v1/submissions/{submission_id}").json()["shapes"] == {}
    assert "Speedups by shape" not in page(http, f"/submissions/{submission_id}")


@pytest.mark.parametrize("path", [f"/problems/{_NAME}", f"/api/v1/problems/{_NAME}", "/api/v1/problems"])
def test_a_problem_shows_its_shapes_and_only_the_number_of_held_out_ones(
    http: httpx.Client, problem: Problem, path: str
) -> None:
    answer = http.get(path)
    assert answer.status_code == 200
    assert "wide" in answer.text
    for hidden in ("987654", "hidden_one", "one_less"):
        assert hidden not in answer.text
    if path.startswith("/api"):
        found = answer.json()
        record = found if "id" in found else next(each for each in found["items"] if each["id"] == _NAME)
        assert record["held_out_shapes"] == {"full": 5}
        assert record["shapes"]["full"]["wide"] == {"use": "timed", "values": {"dim": 1024}}
    else:
        assert "5 more" in answer.text
        assert "dim = 1024" in answer.text
    assert problem.shapes["full"]["hidden_one"].values == {"rows": 987654}


def _board(http: httpx.Client, **params: str) -> dict[str, Any]:
    answer = http.get("/api/v1/leaderboard", params={"problem": _NAME, "device": "cpu", "size": "full", **params})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_each_timed_shape_and_the_mean_have_a_board(http: httpx.Client, seeds: Seeds, problem: Problem) -> None:
    submission_id = _submitted(seeds, problem)
    for params, speedup, baseline in (({}, 2.0, 2.0), ({"shape": "wide"}, 3.0, 12.0), ({"shape": "*"}, 2.45, None)):
        board = _board(http, **params)
        assert (board["size"], board["shape"]) == ("full", params.get("shape"))
        (entry,) = board["entries"]
        assert (entry["submission"], entry["speedup"], entry["baseline_ms"]) == (submission_id, speedup, baseline)
    assert _board(http, shape="wide", track="training")["entries"] == []
    for shape, problem_id, words in (
        ("hidden_one", _NAME, "wide, and * for their mean"),
        ("none", _NAME, "wide, and * for their mean"),
        ("*", "relu", "no timed shape"),
    ):
        params = {"problem": problem_id, "device": "cpu", "size": "full", "shape": shape}
        refused = assert_problem(http.get("/api/v1/leaderboard", params=params), 422)
        assert words in str(refused["detail"])
        assert "hidden_one" not in str(refused["detail"])


def test_the_page_of_a_problem_shows_the_board_of_a_shape(http: httpx.Client, seeds: Seeds, problem: Problem) -> None:
    _submitted(seeds, problem)
    usual = page(http, f"/problems/{_NAME}")
    assert "size full, float32" in usual
    for choice in ("<option>full/wide</option>", "<option>full/*</option>"):
        assert choice in usual
    wide = page(http, f"/problems/{_NAME}?size=full/wide")
    assert f"<strong>3.00{_TIMES}</strong>" in wide
    assert "size=full&amp;shape=wide" in wide
    mean = page(http, f"/problems/{_NAME}?size=full/*")
    assert f"<strong>2.45{_TIMES}</strong>" in mean
    assert "mean of size full and its timed shapes" in mean
