"""The stages of an engine's progress as spans of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context

from opentelemetry.trace import Span

from evaluator.engine import Progress
from runtime import tracing

__all__ = ["stages"]


@contextmanager
def stages(show: Callable[[Progress], None]) -> Iterator[Callable[[Progress], None]]:
    """Yield a ``show`` that also makes a span of each stage, or ``show`` itself where nothing is traced.

    The spans are parts of the caller's current span, whichever thread calls ``show``.
    """
    if not tracing.enabled():
        yield show
        return
    current: list[tuple[str, Span]] = []
    here = copy_context()

    def leave() -> None:
        while current:
            current.pop()[1].end()

    def enter(progress: Progress) -> None:
        if not current or current[0][0] != progress.stage:
            leave()
            current.append((progress.stage, here.run(tracing.stage_span, progress.stage)))
        show(progress)

    try:
        yield enter
    finally:
        leave()
