"""Rules as values: read from tables and texts, joined, and written."""

from __future__ import annotations

from typing import Any

import pytest

from kerneljudge.terms.operator_names import OPERATORS, TENSOR_METHODS, operators_of
from kerneljudge.terms.rules import NO_RULES, Rules, parse_rules, rules_text

SOME = Rules(languages=("cuda", "triton"), forbidden_operators=("matmul", "softmax"), no_lower_precision=True)


def test_rules_are_written_and_read_back() -> None:
    assert rules_text(SOME) == "forbidden_operators=matmul+softmax,languages=cuda+triton,no_lower_precision=true"
    assert parse_rules(rules_text(SOME)) == SOME
    assert Rules.from_dict(SOME.to_dict()) == SOME
    assert parse_rules("") == NO_RULES == Rules.from_dict({})
    assert rules_text(NO_RULES) == ""


def test_the_order_of_names_makes_no_other_rules() -> None:
    assert parse_rules(" languages = triton + cuda+cuda ") == Rules(languages=("cuda", "triton"))


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ({"language": ["cuda"]}, "language"),
        ({"languages": ["rust"]}, "rust"),
        ({"languages": []}, "languages"),
        ({"languages": "cuda"}, "languages"),
        ({"forbidden_operators": ["softmaxx"]}, "softmaxx"),
        ({"forbidden_operators": [["softmax"]]}, "forbidden_operators"),
        ({"no_lower_precision": 1}, "no_lower_precision"),
    ],
)
def test_rules_with_a_mistake_are_refused_by_name(data: dict[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        Rules.from_dict(data)


@pytest.mark.parametrize("value", ["x" * 9999, ["x" * 9999], ["x" * 9999] * 65])
@pytest.mark.parametrize("field", ["forbidden_operators", "languages", "no_lower_precision", "y" * 9999])
def test_a_mistake_is_not_quoted_at_length(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"no rule|must be|may name") as raised:
        Rules.from_dict({field: value})
    assert "x" * 201 not in str(raised.value)
    assert "y" * 201 not in str(raised.value)


@pytest.mark.parametrize("text", ["languages", "languages=cuda,languages=cpp", "no_lower_precision=yes", "x=y"])
def test_a_text_with_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rule|no_lower_precision"):
        parse_rules(text)


def test_joined_rules_are_never_looser_than_either() -> None:
    ours = Rules(languages=("cuda", "triton"), forbidden_operators=("matmul",))
    theirs = Rules(languages=("cpp", "triton"), forbidden_operators=("softmax",), no_lower_precision=True)
    joined = Rules(("triton",), ("matmul", "softmax"), no_lower_precision=True)
    assert ours.joined(theirs) == theirs.joined(ours) == joined
    assert ours.joined(NO_RULES) == NO_RULES.joined(ours) == ours
    assert ours.joined(Rules(no_lower_precision=False)) == ours


def test_rules_that_allow_no_common_language_cannot_be_joined() -> None:
    with pytest.raises(ValueError, match="cuda"):
        Rules(languages=("cuda",)).joined(Rules(languages=("triton",)))


def test_every_operator_is_one_of_torch() -> None:
    torch = pytest.importorskip("torch")
    spaces = (torch, torch.nn.functional, torch.Tensor)
    assert [name for name in OPERATORS if not any(hasattr(space, name) for space in spaces)] == []


def test_every_method_of_a_tensor_that_is_an_operator_is_known() -> None:
    torch = pytest.importorskip("torch")
    methods = {name.strip("_") for name in dir(torch.Tensor) if not name.startswith("_") and operators_of(name)}
    assert methods == set(TENSOR_METHODS)


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("Conv2d", {"conv2d"}),
        ("LayerNorm", {"layer_norm"}),
        ("native_layer_norm", {"layer_norm"}),
        ("relu_", {"relu"}),
        ("_softmax", {"softmax"}),
        ("addmm", {"addmm", "matmul"}),
        ("CrossEntropyLoss", {"cross_entropy", "log_softmax", "nll_loss"}),
        ("LazyLinear", {"linear", "matmul"}),
        ("zeros", set()),
        ("allow_tf32", set()),
    ],
)
def test_a_name_of_torch_counts_as_the_operators_that_it_computes(name: str, operators: set[str]) -> None:
    assert operators_of(name) == operators
