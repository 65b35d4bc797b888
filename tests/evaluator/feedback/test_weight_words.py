"""What is said of weights in a wrong answer."""

from __future__ import annotations

from evaluator.feedback.weight_words import listed, sentences_about


def test_each_group_has_a_sentence() -> None:
    assert list(
        sentences_about(
            {
                "without_counterpart": [{"name": "linear.bias", "shape": [8]}],
                "differing": [{"name": "a", "shape": [2, 3]}, {"name": "b", "shape": []}],
                "transposed": [{"name": "linear.weight", "shape": [8, 4]}],
            }
        )
    ) == [
        "linear.bias (8) has no counterpart in the candidate",
        "a (2, 3), b () were constructed with other values under the same seed",
        "linear.weight (8, 4) was found transposed",
    ]
    assert list(sentences_about({})) == []


def test_of_many_a_few_are_named() -> None:
    assert listed(["a", "b", "c"]) == "a, b, c"
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
