"""What the documentation shows exists and works as shown."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.evaluation import Verdict
from evaluator.flags import FlagKind
from evaluator.problems.loading import load_problem
from evaluator.problems.vetting import REFUSALS, Label
from kerneljudge.cli.app import app
from runtime.settings import Settings
from tests.corpus import Case
from tests.prose import paragraphs, sentences, words

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
PACKAGES = ("api", "worker", "kerneljudge", "storage", "runtime", "evaluator", "benchmarks", "demo", "tests")
MOST_WORDS_OF_A_SENTENCE = 25
MOST_WORDS_OF_A_PARAGRAPH = 80


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as the usual renderers make them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links() -> Iterator[tuple[Path, str]]:
    for document in DOCUMENTS:
        prose = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if "://" not in target:
                yield document, target


@pytest.mark.parametrize(("document", "target"), list(links()), ids=lambda value: getattr(value, "name", value))
def test_a_link_leads_somewhere(document: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    destination = (document.parent / path).resolve() if path else document
    assert destination.is_relative_to(ROOT)
    assert destination.exists()
    if anchor:
        assert anchor in anchors(destination.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_sentences_and_paragraphs_are_short(document: Path) -> None:
    found = list(paragraphs(document.read_text(encoding="utf-8")))
    long_sentences = [
        (line, sentence)
        for line, paragraph in found
        for sentence in sentences(paragraph)
        if words(sentence) > MOST_WORDS_OF_A_SENTENCE
    ]
    assert long_sentences == []
    assert [line for line, paragraph in found if words(paragraph) > MOST_WORDS_OF_A_PARAGRAPH] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One two. Three\nfour!\n\nFive", [(1, ["One two.", "Three four!"]), (4, ["Five"])]),
        ("# Head\n| a | b |\n- one `x y` two\n- [a link](b.md)\n", [(3, ["one Code two"]), (4, ["a link"])]),
        ("Before\n```\n- code. More code.\n```\n**Bold** after", [(1, ["Before"]), (5, ["Bold after"])]),
    ],
)
def test_prose_is_told_from_what_is_none(text: str, found: list[tuple[int, list[str]]]) -> None:
    assert [(line, sentences(paragraph)) for line, paragraph in paragraphs(text)] == found
    assert words("A `b` costs 1.5 ms, or 20 %") == 7


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_of_ours_that_is_named_exists(document: Path) -> None:
    named = re.findall(rf"`((?:{'|'.join(PACKAGES)})/[\w./-]+)`", document.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_target_of_make_that_is_named_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    text = document.read_text(encoding="utf-8")
    named = re.findall(r"^make ([a-z-]+)", "\n".join(blocks(text, "bash")), re.MULTILINE)
    named += re.findall(r"`make ([a-z-]+)", text)
    assert set(named) <= targets


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_is_shown_exists_with_its_options(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    shown = re.findall(r"(?:^|[/`\s])kerneljudge ((?:[a-z]+ ?)+[^\n`|]*)", "\n".join(blocks(text, "bash")))
    shown += re.findall(r"`kerneljudge ((?:[a-z]+ ?)+[^\n`|]*)", text)
    commands = getattr(get_command(app), "commands")  # noqa: B009 - a group, which its type does not say
    for line in shown:
        words = line.split("#")[0].split()
        command = [words[0]]
        if hasattr(commands[words[0]], "commands") and len(words) > 1:
            command.append(words[1])
        printed = CliRunner().invoke(app, [*command, "--help"], terminal_width=200)
        assert printed.exit_code == 0, line
        for option in re.findall(r"--[a-z-]+", line):
            assert option in printed.output, line


def test_the_readmes_candidate_is_one() -> None:
    (source,) = blocks(read("README.md"), "python")
    candidate = parse_candidate(code=source)
    assert isinstance(candidate, Candidate)
    assert isinstance(parse_candidate(response=read("README.md")), Candidate)


def test_the_readme_explains_every_verdict() -> None:
    table = read("README.md").partition("| verdict | when |")[2].partition("\n\n")[0]
    explained = {name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    assert explained == {str(verdict) for verdict in Verdict}


def test_the_method_explains_every_flag() -> None:
    section = read("docs/methodology.md").partition("## Flags")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE)) == {str(kind) for kind in FlagKind}


def test_the_guide_explains_every_label_and_says_which_refuse() -> None:
    section = read("docs/adding-a-problem.md").partition("## Vetting it")[2].partition("\n## ")[0]
    explained = {
        name: row.split("|")[3].strip()
        for row in re.findall(r"^\| `.*$", section, re.MULTILINE)
        for name in re.findall(r"`([a-z0-9_]+)`", row.split("|")[1])
    }
    assert explained == {str(label): "no" if label in REFUSALS else "yes" for label in Label}


def test_the_example_of_a_problem_loads(tmp_path: Path) -> None:
    text = read("docs/adding-a-problem.md")
    folder = tmp_path / "softplus"
    folder.mkdir()
    (folder / "reference.py").write_text(blocks(text, "python")[0])
    (folder / "problem.toml").write_text(blocks(text, "toml")[0])
    problem = load_problem(folder)
    assert set(problem.sizes) == {"full", "smoke"}
    assert problem.sized_source("full") == problem.source


def test_every_field_of_a_problem_is_documented() -> None:
    text = read("docs/adding-a-problem.md")
    for manifest in (ROOT / "reference_models").glob("*/problem.toml"):
        for name in tomllib.loads(manifest.read_text()):
            assert re.search(rf"`\[?{name}\b", text), name


def test_every_setting_is_documented() -> None:
    settings = read("docs/deploying.md").partition("## Settings")[2]
    rows = re.findall(r"^\| (`KERNELJUDGE_.*?) \|", settings, re.MULTILINE)
    documented = set(re.findall(r"`(KERNELJUDGE_[A-Z_]+)`", " ".join(rows)))
    assert documented == {f"KERNELJUDGE_{name.upper()}" for name in Settings.model_fields}


def test_every_field_of_a_case_is_documented() -> None:
    table = read("CONTRIBUTING.md").partition("## The corpus")[2].partition("\n## ")[0]
    documented = set(
        re.findall(r"`([a-z_]+)`", " ".join(row.split("|")[1] for row in re.findall(r"^\| `.*$", table, re.MULTILINE)))
    )
    assert documented == {field.name for field in fields(Case)} - {"name", "source", "verdicts"} | {"verdict"}


def test_the_licence_is_the_one_that_is_claimed() -> None:
    text = read("LICENSE")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert tomllib.loads(read("pyproject.toml"))["project"]["license"] == "Apache-2.0"


def test_the_changelog_has_a_place_for_the_next_change() -> None:
    assert re.search(r"^## \[Unreleased\]$", read("CHANGELOG.md"), re.MULTILINE)


def test_the_readme_names_every_problem() -> None:
    section = read("README.md").partition("## The problems")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z0-9_]+)`", section))
    assert named == {path.parent.name for path in (ROOT / "reference_models").glob("*/problem.toml")}
