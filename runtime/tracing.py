"""Traces by OpenTelemetry, with its ``OTEL_*`` settings: one for each submission, from its receipt to its verdict.

Where those settings name no destination for spans, nothing is recorded, and the extra ``tracing`` is not needed. A
trace crosses the queue in the submission's row, as a ``traceparent`` of W3C Trace Context.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from evaluator import logs
from runtime.settings import InvalidSettings

__all__ = [
    "configure",
    "current_trace",
    "describe",
    "enabled",
    "fault",
    "new_trace",
    "past_span",
    "span",
    "stage_span",
    "traceparent",
]

_SCOPE: Final = "kerneljudge"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL: Final = "http/protobuf"

_propagator = TraceContextTextMapPropagator()


def configure(service: str) -> None:
    """Send spans to the destination in this process's environment, if there is one, until the process ends.

    ``service`` is the process's name unless the environment has one. Raises ``InvalidSettings``.
    """
    exporter = os.environ.get("OTEL_TRACES_EXPORTER") or ("otlp" if any(map(os.environ.get, _ENDPOINTS)) else "none")
    if exporter == "none" or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    if exporter not in ("otlp", "console"):
        raise InvalidSettings(f"OTEL_TRACES_EXPORTER={exporter}: must be otlp, console or none")
    protocol = next(filter(None, map(os.environ.get, _PROTOCOLS)), _PROTOCOL)
    if exporter == "otlp" and protocol != _PROTOCOL:
        raise InvalidSettings(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: must be {_PROTOCOL}")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter  # noqa: PLC0415
    except ImportError as error:
        raise InvalidSettings("traces are asked for (OTEL_*): pip install 'kerneljudge-server[tracing]'") from error
    # OTEL_RESOURCE_ATTRIBUTES may have the name as well as OTEL_SERVICE_NAME.
    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": service}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter() if exporter == "otlp" else ConsoleSpanExporter()))
    trace.set_tracer_provider(provider)


def enabled() -> bool:
    """Whether spans are recorded."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider)


@contextmanager
def span(name: str, parent: str | None, attributes: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Make the block a span in the trace of ``parent`` (a ``traceparent``), which its log lines name."""
    tracer = trace.get_tracer(_SCOPE)
    with (
        tracer.start_as_current_span(name, _context_of(parent), attributes=attributes),
        logs.about(**current_trace()),
    ):
        yield


def current_trace() -> dict[str, str]:
    """Return the trace of the current span as a field of log lines; empty where none is recorded."""
    current = trace.get_current_span()
    return {"trace_id": trace.format_trace_id(current.get_span_context().trace_id)} if current.is_recording() else {}


def describe(fields: Mapping[str, str]) -> None:
    """Copy the subject fields of log lines, except the trace, to attributes of the current span."""
    own = {f"kerneljudge.{name}": value for name, value in fields.items() if name != "trace_id"}
    trace.get_current_span().set_attributes(own)


def stage_span(name: str) -> Span:
    """Begin a part of the current span now; the caller ends it."""
    return trace.get_tracer(_SCOPE).start_span(name)


def past_span(name: str, parent: str | None, begin: datetime, end: datetime) -> None:
    """Record a span that is over already in the trace of ``parent``; nothing where there is no trace."""
    if parent is None:
        return
    past = trace.get_tracer(_SCOPE).start_span(name, _context_of(parent), start_time=_nanoseconds(begin))
    past.end(_nanoseconds(end))


def traceparent() -> str | None:
    """Return the current span, for another process that continues its trace; ``None`` where none is recorded."""
    if not trace.get_current_span().is_recording():
        return None
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier["traceparent"]


def new_trace(name: str) -> str | None:
    """Begin a new trace linked to the current span, whose parts are too many for one trace; return its beginning.

    ``None`` where no span is recorded.
    """
    current = trace.get_current_span()
    if not current.is_recording():
        return None
    begun = trace.get_tracer(_SCOPE).start_span(name, Context(), links=[Link(current.get_span_context())])
    begun.end()
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(begun))
    return carrier["traceparent"]


def fault(error: BaseException) -> None:
    """Mark the current span as failed through a fault of ours."""
    current = trace.get_current_span()
    current.record_exception(error)
    current.set_status(Status(StatusCode.ERROR, str(error)))


def _context_of(parent: str | None) -> Context:
    """Return the context of ``parent``, or an empty one where that is ``None``, since the current one is unrelated."""
    return _propagator.extract({"traceparent": parent}, Context()) if parent else Context()


def _nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1e9)
