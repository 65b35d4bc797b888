"""Reading problems from their folders, and everything that can be wrong with one."""

from __future__ import annotations

import ast
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.config import EvalConfig
from evaluator.errors import ProblemError
from evaluator.interpreter import DISTRIBUTION_ROOT
from evaluator.problems.loading import load_problem, load_problems, usual_folder
from evaluator.problems.problem import KernelBenchIdentity, Problem, Tolerance
from evaluator.problems.vetting import NOT_VETTED
from kerneljudge.terms.rules import Rules
from runtime.settings import Settings

REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x


batch_size = 16
dim = 2 * batch_size
name = "größe"; scale = (
    1.5
)


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return []
"""
MANIFEST = """\
title = "Identity"
description = "Returns its input."
tags = ["easy"]

[sizes.full]
batch_size = 64

[sizes.smoke]
batch_size = 4
scale = 0.5
"""


def write(root: Path, *, name: str = "identity", reference: str = REFERENCE, manifest: str = MANIFEST) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "reference.py").write_text(reference, encoding="utf-8")
    (folder / "problem.toml").write_text(manifest, encoding="utf-8")
    return folder


def globals_of(source: str) -> dict[str, object]:
    """The module's plain assignments, evaluated; torch is not needed for them."""
    body: list[ast.stmt] = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    namespace: dict[str, object] = {}
    exec(compile(ast.Module(body, []), "reference.py", "exec"), namespace)  # noqa: S102 - our own text
    return namespace


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return load_problem(write(tmp_path))


# --- a problem that is right -----------------------------------------------------------------------------------------


def test_a_problem_is_its_two_files(problem: Problem) -> None:
    assert problem.id == "identity"
    assert problem.title == "Identity"
    assert problem.source == REFERENCE
    assert problem.sizes == {"full": {"batch_size": 64}, "smoke": {"batch_size": 4, "scale": 0.5}}
    assert problem.tags == ("easy",)


def test_what_a_manifest_leaves_out_has_its_default(problem: Problem) -> None:
    assert problem.dtype == "float32"
    assert problem.gradient_policy == "check"
    assert problem.input_domain == "real"
    assert not problem.row_independent
    assert problem.kernelbench is None
    assert problem.tolerance("float32") == Tolerance(1e-4, 1e-4)
    assert problem.tolerance("bfloat16") == problem.tolerance("float16") == Tolerance(1e-2, 1e-2)


def test_every_field_of_a_manifest_is_read(tmp_path: Path) -> None:
    manifest = f"""dtype = "float16"
{MANIFEST}
[gradients]
policy = "require"

[inputs]
domain = "as_written"

[reference]
row_independent = true

[tolerance]
float16 = {{ atol = 2e-3, rtol = 3e-3 }}

[kernelbench]
level = 1
problem_id = 19
name = "19_ReLU"
"""
    problem = load_problem(write(tmp_path, manifest=manifest))
    assert problem.dtype == "float16"
    assert problem.gradient_policy == "require"
    assert problem.input_domain == "as_written"
    assert problem.row_independent
    assert problem.tolerance("float16") == Tolerance(2e-3, 3e-3)
    assert problem.tolerance("float32") == Tolerance(1e-4, 1e-4)
    assert problem.kernelbench == KernelBenchIdentity(1, 19, "19_ReLU")


def test_a_problem_survives_json(problem: Problem, problems: dict[str, Problem]) -> None:
    for each in (problem, *problems.values()):
        assert Problem.from_dict(json.loads(json.dumps(each.to_dict()))) == each


def test_reading_a_problem_executes_nothing(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    reference = f"open({str(trap)!r}, 'w')\n{REFERENCE}"
    load_problem(write(tmp_path, reference=reference)).sized_source("smoke")
    assert not trap.exists()


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_a_size_replaces_globals_and_what_derives_from_them_follows(problem: Problem) -> None:
    values = globals_of(problem.sized_source("smoke"))
    assert (values["batch_size"], values["dim"], values["scale"], values["name"]) == (4, 8, 0.5, "größe")
    assert globals_of(problem.sized_source("full"))["scale"] == 1.5


def test_a_size_changes_nothing_else(problem: Problem) -> None:
    expected = REFERENCE.replace("batch_size = 16", "batch_size = 64")
    assert problem.sized_source("full") == expected


def test_a_size_reaches_into_tuples_and_what_is_assigned_together(tmp_path: Path) -> None:
    reference = REFERENCE.replace("batch_size = 16\n", "batch_size, shape = 16, (3, 240)\nheight = width = 256\n")
    manifest = MANIFEST + '"shape[1]" = 7\nheight = 9\n'
    problem = load_problem(write(tmp_path, reference=reference, manifest=manifest))
    assert "batch_size, shape = 4, (3, 7)\nheight = width = 9\n" in problem.sized_source("smoke")


def test_an_unknown_size_names_those_there_are(problem: Problem) -> None:
    with pytest.raises(ProblemError, match="no size 'huge'; it has full, smoke"):
        problem.sized_source("huge")


# --- versions --------------------------------------------------------------------------------------------------------


def test_a_version_does_not_depend_on_how_a_problem_is_described(tmp_path: Path, problem: Problem) -> None:
    (tmp_path / "other").mkdir()
    renamed = MANIFEST.replace('"Identity"', '"I"').replace("Returns its input.", "x").replace('"easy"', '"hard"')
    assert load_problem(write(tmp_path / "other", manifest=renamed)).version == problem.version


@pytest.mark.parametrize(
    ("reference", "manifest"),
    [
        (REFERENCE.replace("return x", "return 2 * x"), MANIFEST),
        (REFERENCE, MANIFEST.replace("64", "65")),
        (REFERENCE, f'dtype = "float16"\n{MANIFEST}'),
        (REFERENCE, f'{MANIFEST}\n[gradients]\npolicy = "none"'),
        (REFERENCE, f'{MANIFEST}\n[inputs]\ndomain = "as_written"'),
        (REFERENCE, f"{MANIFEST}\n[tolerance]\nfloat32 = {{ atol = 1e-5, rtol = 1e-5 }}"),
        (REFERENCE, f"{MANIFEST}\n[reference]\nrow_independent = true"),
        (REFERENCE, f"{MANIFEST}\n[reference]\nwhole_inputs = [1]"),
        (REFERENCE, f'{MANIFEST}\n[reference]\npooled = "mean"'),
        (REFERENCE, f"{MANIFEST}\n[reference]\ntf32 = false"),
        (REFERENCE, f'{MANIFEST}\n[rules]\nlanguages = ["triton"]'),
        (REFERENCE, f"{MANIFEST}\n[rules]\nno_lower_precision = true"),
    ],
)
def test_a_version_changes_with_whatever_can_change_a_verdict(
    tmp_path: Path, problem: Problem, reference: str, manifest: str
) -> None:
    (tmp_path / "other").mkdir()
    changed = load_problem(write(tmp_path / "other", reference=reference, manifest=manifest))
    assert changed.version != problem.version


def test_an_empty_table_of_rules_is_no_other_version(tmp_path: Path, problem: Problem) -> None:
    (tmp_path / "other").mkdir()
    assert load_problem(write(tmp_path / "other", manifest=f"{MANIFEST}\n[rules]\n")).version == problem.version


def test_rules_are_read_shown_and_kept(tmp_path: Path) -> None:
    table = '[rules]\nlanguages = ["triton", "cuda"]\nforbidden_operators = ["softmax"]\nno_lower_precision = true\n'
    found = load_problem(write(tmp_path, manifest=f"{MANIFEST}\n{table}"))
    assert found.rules == Rules(("cuda", "triton"), ("softmax",), no_lower_precision=True)
    assert found.to_record()["rules"] == found.rules.to_dict()
    assert Problem.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_problem_may_leave_its_convolutions_no_tf32(problem: Problem, tmp_path: Path) -> None:
    strict = load_problem(write(tmp_path, name="strict", manifest=f"{MANIFEST}\n[reference]\ntf32 = false"))
    assert [each.tf32_in(EvalConfig()) for each in (problem, strict)] == [True, False]
    assert not problem.tf32_in(EvalConfig(baseline="ieee"))
    assert Problem.from_dict(json.loads(json.dumps(strict.to_dict()))) == strict


@pytest.mark.parametrize(
    ("layer", "convolves"),
    [("torch.conv2d", True), ("nn.ConvTranspose1d", True), ("nn.GRU", True), ("nn.Linear", False)],
)
def test_only_a_problem_that_convolves_rounds_to_tf32(layer: str, convolves: bool, problem: Problem) -> None:
    found = replace(problem, source=f"{problem.source}\nlayer = {layer}\n")
    assert found.convolves is convolves
    assert found.to_record()["tf32"] is convolves
    # Results from before it rounded are of another version, and those of other problems are not.
    content = {**found.to_dict(), "tf32": True}
    for name in ("title", "description", "tags", "kernelbench", "baselines", "tf32"):
        del content[name]
    for younger in ("limits", "shapes", "held_out_salt", "rules", "whole_inputs", "pooled"):
        assert not content.pop(younger)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    before = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    assert (found.version != before) is convolves


# --- what can be wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (MANIFEST.replace('title = "Identity"', ""), "title must be a non-empty text"),
        (MANIFEST.replace('"Identity"', '" "'), "title must be a non-empty text"),
        (MANIFEST.replace("full", "large"), r"\[sizes\] must hold at least \[sizes.full\]"),
        (MANIFEST.replace("= 64", "= true"), "sizes.full.batch_size must be a finite number, not True"),
        (MANIFEST.replace("= 64", '= "64"'), "sizes.full.batch_size must be a finite number, not '64'"),
        (MANIFEST.replace("scale", "depth"), "no global assignment of depth"),
        (MANIFEST.replace('tags = ["easy"]', 'tags = "easy"'), "tags must be a list of texts"),
        (f'colour = "red"\n{MANIFEST}', "unknown field 'colour'"),
        (f'dtype = "float8"\n{MANIFEST}', "dtype must be one of float32, float16, bfloat16, not 'float8'"),
        (f"inputs = 3\n{MANIFEST}", r"\[inputs\] must be a table"),
        (f'{MANIFEST}\n[gradients]\npolicy = "maybe"', "policy must be one of check, require, none"),
        (f'{MANIFEST}\n[inputs]\ndomain = "positive"', "domain must be one of real, as_written"),
        (f"{MANIFEST}\n[reference]\nrow_independent = 1", "row_independent must be true or false, not 1"),
        (f'{MANIFEST}\n[reference]\ntf32 = "off"', "tf32 must be true or false, not 'off'"),
        (f"{MANIFEST}\n[reference]\nwhole_inputs = 1", r"reference\.whole_inputs must be a list of numbers"),
        (f"{MANIFEST}\n[reference]\nwhole_inputs = [true]", r"reference\.whole_inputs must be a list of numbers"),
        (f"{MANIFEST}\n[reference]\nwhole_inputs = [64]", r"reference\.whole_inputs must be numbers .* from 0 to 63"),
        (f'{MANIFEST}\n[reference]\npooled = "median"', "pooled must be one of mean, sum, not 'median'"),
        (f"{MANIFEST}\n[reference]\nrow_independent = true\nwhole_inputs = [1]", "rows are not, where slices have"),
        (f'{MANIFEST}\n[rules]\nlanguages = ["rust"]', r"\[rules\]: languages may name cpp, .*, and not 'rust'"),
        (f"{MANIFEST}\n[rules]\nno_half = true", r"\[rules\]: there is no rule 'no_half'"),
        (f"{MANIFEST}\n[tolerance]\nfloat8 = {{ atol = 1, rtol = 1 }}", "tolerance.float8: precision must be one of"),
        (f"{MANIFEST}\n[tolerance]\nfloat32 = {{ atol = 1e-4 }}", "tolerance.float32 must give the numbers"),
        (f"{MANIFEST}\n[tolerance]\nfloat32 = {{ atol = 0, rtol = 1e-4 }}", "must lie between 0 and 1"),
        (
            f"{MANIFEST}\n[tolerance]\nfloat32 = {{ atol = 1e-4, rtol = 1e-4, ulp = 4 }}",
            "tolerance.float32: unknown field 'ulp'; known are atol, rtol",
        ),
        (f'{MANIFEST}\n[gradients]\npolcy = "none"', r"\[gradients\]: unknown field 'polcy'; known are policy"),
        (f'{MANIFEST}\n[inputs]\nrange = "real"', r"\[inputs\]: unknown field 'range'; known are domain"),
        (f"{MANIFEST}\n[reference]\nrows = true", r"\[reference\]: unknown field 'rows'; known are pooled, row_ind"),
        (f"{MANIFEST}\n[tolerance]\nfloat32 = {{ atol = nan, rtol = 1e-4 }}", "must lie between 0 and 1"),
        (f"{MANIFEST}\n[kernelbench]\nlevel = 1", r"\[kernelbench\] must give level, problem_id and name"),
        ("title = ", "Invalid value"),
    ],
)
def test_a_bad_manifest_is_refused_with_its_file_and_field(tmp_path: Path, manifest: str, message: str) -> None:
    folder = write(tmp_path, manifest=manifest)
    with pytest.raises(ProblemError, match=message) as caught:
        load_problem(folder)
    assert str(folder / "problem.toml") in str(caught.value)


@pytest.mark.parametrize("missing", ["Model", "get_inputs", "get_init_inputs"])
def test_a_reference_must_define_what_kernelbench_asks_for(tmp_path: Path, missing: str) -> None:
    with pytest.raises(ProblemError, match=rf"reference\.py: does not define {missing}$"):
        load_problem(write(tmp_path, reference=REFERENCE.replace(f" {missing}(", " other(")))


def test_a_reference_that_does_not_parse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"reference\.py does not parse"):
        load_problem(write(tmp_path, reference="def get_inputs(:\n"))


@pytest.mark.parametrize("name", ["ReLU", "re-lu", "_relu", "re lu"])
def test_a_folder_that_is_no_id_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProblemError, match="lower case letters"):
        load_problem(write(tmp_path, name=name))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "reference.py").unlink()
    with pytest.raises(ProblemError, match=r"reference\.py"):
        load_problem(folder)


def test_a_folder_of_problems_is_read_in_the_order_of_their_ids(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        write(tmp_path, name=name)
    (tmp_path / "notes").mkdir()
    assert list(load_problems(tmp_path)) == ["a", "b", "c"]


def test_no_problem_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="no problem in"):
        load_problems(tmp_path)
    with pytest.raises(ProblemError, match="no folder of problems"):
        load_problems(tmp_path / "nowhere")


def test_a_second_folder_adds_problems_and_need_not_exist(tmp_path: Path) -> None:
    own, more = tmp_path / "own", tmp_path / "more"
    own.mkdir()
    write(own, name="b")
    assert list(load_problems(own, more)) == ["b"]
    more.mkdir()
    assert list(load_problems(own, more)) == list(load_problems(own, own)) == ["b"]
    write(more, name="a")
    assert list(load_problems(own, more)) == ["a", "b"]
    write(more, name="b")
    with pytest.raises(ProblemError, match="two problems are called b: one in"):
        load_problems(own, more)


# --- ranking ---------------------------------------------------------------------------------------------------------


def test_a_problem_is_ranked_once_this_version_was_vetted_at_this_precision(
    problem: Problem, problems: dict[str, Problem]
) -> None:
    assert problem.refusal == NOT_VETTED
    assert problem.to_record()["ranked"] is False
    known = problems["gelu"].vettings_at("float32")[0]
    vetted = replace(problem, vettings=(replace(known, version=problem.version),))
    assert (vetted.refusal, vetted.stale) == (None, False)
    assert vetted.refusal_at("float16") == NOT_VETTED
    changed = replace(problem, vettings=(known,))
    assert (changed.refusal, changed.stale) == (NOT_VETTED, True)


def test_a_definition_that_was_stored_before_is_read(problem: Problem) -> None:
    assert Problem.from_dict({**problem.to_dict(), "needs_vetting": True}) == problem


# --- the problems of this repository ---------------------------------------------------------------------------------


def test_the_two_first_problems_have_kernelbenchs_sizes(problems: dict[str, Problem]) -> None:
    relu, linear = problems["relu"], problems["linear_relu_divide"]
    assert relu.sizes["full"] == {"batch_size": 4096, "dim": 393216}
    assert relu.kernelbench == KernelBenchIdentity(1, 19, "19_ReLU")
    assert linear.sizes["full"] == {"batch_size": 1024, "in_features": 8192, "out_features": 8192, "divisor": 2.0}
    assert linear.kernelbench == KernelBenchIdentity(2, 63, "63_Gemm_ReLU_Divide")


def test_every_problem_is_complete(problems: dict[str, Problem]) -> None:
    for problem in problems.values():
        assert "smoke" in problem.sizes
        assert problem.sized_source("full") == problem.source, "a reference is written at its full size"


def test_where_no_folder_is_named_it_is_the_one_here_or_that_of_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert usual_folder() == DISTRIBUTION_ROOT / "reference_models"
    assert Settings.load({}).problems_dir == DISTRIBUTION_ROOT / "reference_models"
    (tmp_path / "reference_models").mkdir()
    assert usual_folder().absolute() == tmp_path / "reference_models"
    assert Settings.load({}).problems_dir.absolute() == tmp_path / "reference_models"
