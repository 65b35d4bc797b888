"""``kerneljudge problems import``, and the commands that see what it has written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from evaluator.errors import DoesNotFit
from evaluator.problems.loading import load_problem, load_problems
from evaluator.problems.vetting import Label
from kerneljudge_server import import_problems, local
from kerneljudge_server.folders import extra_problems_folder
from runtime.settings import Settings
from tests.checkouts import reference, write_published
from tests.kerneljudge.conftest import PROBLEMS, Cli

RELU = "kernelbench_1_019_relu"
ORDER = "kernelbench_1_051_order"
SMALL = "batch_size = 8\nfeatures = 64"
MANY = "batch_size = 8\nfeatures = 512"
"""Of so few as 64 in a row, half precision keeps the order by chance."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two problems that are admitted, and three files that are refused, one of them broken."""
    root = tmp_path / "checkout"
    write_published(root, 1, "19_ReLU", reference("return x.clamp(min=0)", sizes="batch_size = 4096\nfeatures = 65536"))
    write_published(root, 1, "51_Order", reference("return x.argsort(stable=True)", sizes=MANY))
    write_published(root, 1, "20_Broken", "def Model(:\n")
    write_published(root, 2, "66_Dropout", reference("return torch.dropout(x, 0.5, True)", sizes=SMALL))
    write_published(root, 4, "1_Language_Model", reference("return x", sizes=SMALL))
    return root


def test_a_checkout_becomes_problems_that_every_command_sees(cli: Cli, checkout: Path, tmp_path: Path) -> None:
    result = cli("problems", "import", checkout, "--scale", "1/64", "--no-vet")
    assert result.exit_code == 1, result.stderr
    for words in (
        RELU, "new", "batch_size 4096\N{RIGHTWARDS ARROW}", "scale_1_64: ",
        "kernelbench_1_020_broken", "refused", "it does not parse", "its output is random", "level 4 loads",
        "judged in slices of rows",
        "as published", "it returns int64, equal but for ties and rounding", "5 problems: 2 new, 3 refused; 0 ranked.",
    ):  # fmt: skip
        assert words in result.stdout, words
    assert "importing: " in result.stderr
    assert set(load_problems(tmp_path / ".kerneljudge" / "problems")) == {RELU, ORDER}

    listed = {item["id"]: item for item in json.loads(cli("problems", "list", "--json").stdout)["items"]}
    assert {RELU, ORDER, "relu"} <= set(listed)
    assert (listed[RELU]["ranked"], listed[RELU]["kernelbench"]["name"]) == (False, "19_ReLU")
    same = tmp_path / "same.py"
    same.write_text("from model import Model\n\n\nclass ModelNew(Model):\n    pass\n")
    graded = cli("eval", same, "--problem", ORDER, "--device", "cpu", "--json")
    assert graded.exit_code == 0, graded.stderr
    assert json.loads(graded.stdout)["gradients"] == "not_applicable"


def test_importing_again_changes_what_has_changed(cli: Cli, checkout: Path) -> None:
    argv = ["problems", "import", checkout, "--level", "1", "--into", "mine", "--no-vet", "--json"]
    first = json.loads(cli(*argv).stdout)
    assert {name: first[name] for name in ("admitted", "new", "refused")} == {"admitted": 2, "new": 2, "refused": 1}
    versions = {item["id"]: item["version"] for item in first["items"]}
    write_published(checkout, 1, "51_Order", reference("return x.argsort(dim=0, stable=True)", sizes=SMALL))
    result = cli(*argv)
    assert result.exit_code == 1, result.stderr
    items = {item["id"]: item for item in json.loads(result.stdout)["items"]}
    assert {name: item["status"] for name, item in items.items()} == {
        RELU: "unchanged", "kernelbench_1_020_broken": "refused", ORDER: "changed",
    }  # fmt: skip
    assert items[RELU]["version"] == versions[RELU]
    assert [item["row_independent"] for item in items.values()] == [True, None, False]
    assert items[ORDER]["version"] != versions[ORDER]
    assert "it does not parse" in items["kernelbench_1_020_broken"]["reason"]


def test_vetting_ranks_what_it_finds_nothing_against(cli: Cli, checkout: Path) -> None:
    (checkout / "KernelBench" / "level1" / "20_Broken.py").unlink()
    (checkout / "KernelBench" / "level1" / "19_ReLU.py").unlink()
    result = cli("problems", "import", checkout, "--level", "1", "--into", "mine", "--json")
    assert result.exit_code == 0, result.stderr
    (item,) = json.loads(result.stdout)["items"]
    assert (item["id"], item["ranked"], item["unvetted"]) == (ORDER, True, None)
    assert load_problem(Path("mine") / ORDER).labels == (Label.NO_GRADIENT,)
    assert f"vetting: 1 of 1, {ORDER}: " in result.stderr
    again = cli("problems", "import", checkout, "--level", "1", "--into", "mine")
    assert "1 unchanged; 1 ranked" in again.stdout
    assert "vetting" not in again.stderr


def test_what_cannot_be_vetted_does_not_keep_the_rest_from_it(
    cli: Cli, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(wanted: list[tuple[object, str]], *_given: object) -> object:
        raise DoesNotFit(f"{len(wanted)} left")

    monkeypatch.setattr(local, "vet", refuse)
    (checkout / "KernelBench" / "level1" / "20_Broken.py").unlink()
    result = cli("problems", "import", checkout, "--level", "1", "--into", "mine")
    assert result.exit_code == 3
    assert "not vetted: 2 left" in result.stdout
    assert "not vetted: 1 left" in result.stdout


@pytest.mark.parametrize("scale", ["2", "1", "0", "-1/2", "1/0", "much"])
def test_a_scale_that_is_none_is_bad_usage(cli: Cli, checkout: Path, scale: str) -> None:
    result = cli("problems", "import", checkout, f"--scale={scale}", "--json")
    assert result.exit_code == 2
    assert "between 0 and 1" in json.loads(result.stdout)["error"]


def test_a_folder_without_problems_is_bad_usage(cli: Cli, tmp_path: Path) -> None:
    result = cli("problems", "import", tmp_path, "--json")
    assert result.exit_code == 2
    assert "no KernelBench problem in" in json.loads(result.stdout)["error"]


def test_a_folder_that_cannot_be_written_to_is_bad_usage(cli: Cli, checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = cli("problems", "import", checkout, "--level", "1", "--into", tmp_path / "file")
    assert result.exit_code == 2
    assert "cannot write to" in result.stderr


def test_a_complete_sandbox_can_be_required(cli: Cli, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def note(*_given: object, require_sandbox: bool, **_more: object) -> import_problems.Imported:
        asked.append(require_sandbox)
        return import_problems.Imported(checkout, (), {})

    monkeypatch.setattr(import_problems, "run_import", note)
    cli("problems", "import", checkout, "--require-sandbox")
    cli("problems", "import", checkout)
    assert asked == [True, False]


@pytest.mark.parametrize("variables", [{}, {"DATA_DIR": "/data"}, {"EXTRA_PROBLEMS_DIR": "/more"}])
def test_the_command_and_the_service_mean_the_same_folder(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(f"KERNELJUDGE_{name}", value)
    assert extra_problems_folder() == Settings.load().extra_problems_dir


def test_problems_of_a_folder_that_is_named_are_those_alone(cli: Cli, tmp_path: Path) -> None:
    shutil.copytree(PROBLEMS / "relu", tmp_path / "mine" / "kernelbench_1_019_relu")
    listed = json.loads(cli("problems", "list", "--problems-dir", "mine", "--json").stdout)["items"]
    assert {item["id"] for item in listed} == {RELU}
    assert not json.loads(cli("problems", "list", "--json").stdout)["items"][0]["id"].startswith("kernelbench")
