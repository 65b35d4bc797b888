"""The answers of models: a text, or a conversation that ends with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["Completion", "text_of"]

Completion = str | Sequence[Mapping[str, Any]]
"""A model's answer: its text, or a conversation that ends with it (messages with ``role`` and ``content``)."""


def text_of(completion: Completion) -> str:
    """Return the text of a completion. Of a conversation, it is that of the model's last message."""
    if isinstance(completion, str):
        return completion
    last = next((message for message in reversed(completion) if message["role"] == "assistant"), None)
    return "" if last is None else _content(last["content"])


def _content(content: Any) -> str:
    """Return the text of a message. A message may consist of parts, of which only texts count."""
    if content is None or isinstance(content, str):
        return content or ""
    parts: Iterable[Any] = content
    return "".join(part["text"] for part in parts if part["type"] == "text")
