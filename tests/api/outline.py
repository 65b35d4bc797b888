"""Pages as a browser's parser sees them, held against what is promised of every page."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser

import httpx

MOST_BYTES = 150_000
"""A page with everything that a browser fetches for it, uncompressed."""


class Outline(HTMLParser):
    """The tags of a page, and whether each is closed."""

    VOID = frozenset({"meta", "link", "img", "br", "hr", "input"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.ids: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)


def page(http: httpx.Client, path: str, status: int = 200, headers: Mapping[str, str] | None = None) -> str:
    """The page at ``path``, which keeps what is promised of all."""
    answer = http.get(path, headers={"Accept": "text/html", **(headers or {})})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    check(answer.text)
    return answer.text


def check(html: str) -> None:
    """Well-formed, with one heading, without scripts or styles of its own, and without anything from elsewhere."""
    outline = Outline(html)
    assert outline.scripts == []
    assert "style" not in outline.tags
    assert not [name for name, _ in outline.attributes if name.startswith("on") or name == "style"]
    fetched = [value for name, value in outline.attributes if name == "src"]
    assert all(value is not None and value.startswith("/static/") for value in fetched)
    assert outline.tags.count("h1") == 1
    assert len(outline.ids) == len(set(outline.ids))
    assert len(html.encode()) < MOST_BYTES
