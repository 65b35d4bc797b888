"""Identifiers, and column types that mean the same on both databases."""

from __future__ import annotations

import itertools
import math
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy.exc import StatementError
from sqlalchemy.orm import Session, sessionmaker

from storage.columns import clean_text, json_safe
from storage.ids import IdSource, new_id
from storage.models import StoredSource


def test_ids_increase_even_within_one_millisecond() -> None:
    ids = [new_id("sub") for _ in range(5_000)]
    assert all(earlier < later for earlier, later in itertools.pairwise(ids))
    assert {len(each) for each in ids} == {len("sub_") + 26}


def test_ids_of_different_sources_sort_by_time() -> None:
    first = IdSource().new("sub")
    time.sleep(0.003)
    assert first < IdSource().new("sub")


def test_clean_text_replaces_only_what_no_database_holds() -> None:
    assert clean_text("a\x00b\ud800c é ☃") == "a\ufffdb?c é ☃"


def test_json_safe_replaces_what_is_not_finite() -> None:
    assert json_safe({"a": (1.5, math.nan), "b": [math.inf, {"c": "\x00"}], 3: None}) == {
        "a": [1.5, None],
        "b": [None, {"c": "\ufffd"}],
        "3": None,
    }


def test_moments_come_back_in_utc_from_both_databases(sessions: sessionmaker[Session]) -> None:
    moment = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
    with sessions.begin() as session:
        session.add(StoredSource(digest="d", text="nul \x00", created_at=moment))
    with sessions() as session:
        row = session.get_one(StoredSource, "d")
        assert row.created_at == moment
        assert row.created_at.tzinfo is UTC
        assert row.text == "nul \ufffd"


def test_a_moment_without_time_zone_is_refused(sessions: sessionmaker[Session]) -> None:
    with pytest.raises(StatementError, match="time zone"), sessions.begin() as session:
        session.add(StoredSource(digest="d", text="", created_at=datetime(2026, 3, 1)))  # noqa: DTZ001 - the point
