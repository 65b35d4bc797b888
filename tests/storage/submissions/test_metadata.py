"""The rules for metadata of users."""

from __future__ import annotations

from typing import Any

import pytest

from storage.submissions.metadata import MAX_DEPTH, MAX_METADATA_BYTES, canonical_json, checked_metadata


def nested(depth: int) -> dict[str, Any]:
    """An object with ``depth`` objects and lists inside each other."""
    found: Any = []
    for _ in range(depth - 2):
        found = [found]
    return {"a": found}


def sized(size: int) -> dict[str, Any]:
    """An object of ``size`` bytes as canonical JSON."""
    return {"a": "é" + "x" * (size - len('{"a":"é"}'.encode()))}


@pytest.mark.parametrize(
    "metadata", [{}, {"step": 7, "model": "m", "z": None, "a": [1, 1.5, {"b": True}]}, nested(MAX_DEPTH),
                 sized(MAX_METADATA_BYTES), {"text": "ünïcode \U0001f4a9"}, {"big": 10**40}],
    ids=["empty", "mixed", "deep", "large", "unicode", "a large number"],
)  # fmt: skip
def test_an_object_within_the_limits_is_returned_as_it_is(metadata: dict[str, Any]) -> None:
    assert checked_metadata(metadata) is metadata


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (sized(MAX_METADATA_BYTES + 1), "4097 bytes"),
        (nested(MAX_DEPTH + 1), "inside each other"),
        ({"a": [{"b": "\x00"}]}, "NUL"),
        ({"a\x00": 1}, "NUL"),
        ({"a": "\ud800"}, "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        ({"a": [float("nan")]}, "finite"),
        ({"a": float("inf")}, "finite"),
    ],
)
def test_an_object_that_cannot_be_stored_as_it_is_is_refused(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked_metadata(metadata)


def test_a_very_deep_object_is_refused_without_recursion() -> None:
    with pytest.raises(ValueError, match="inside each other"):
        checked_metadata(nested(100_000))


def test_equal_objects_have_one_canonical_text() -> None:
    assert canonical_json({"b": [1, "é"], "a": None}) == canonical_json({"a": None, "b": [1, "é"]})
    assert canonical_json({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'
