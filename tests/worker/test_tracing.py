"""One trace from handing in to the verdict, and none where nobody asked for any."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy import select

from api.app import create_app
from evaluator.evaluation import Status
from runtime import tracing
from runtime.settings import InvalidSettings
from storage.models import Submission
from tests.api.inmemory import running
from tests.worker.conftest import Installation
from tests.worker.test_grading import grader

Install = Callable[..., Installation]
ROOT = Path(__file__).parents[2]
GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What is exported while the test lasts."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The one of a process can be set once only; this is how OpenTelemetry's own tests do it.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def http(install: Install) -> Iterator[tuple[httpx.Client, Installation]]:
    """An application, and the installation that it shares with workers."""
    installation = install(problems_dir=ROOT / "reference_models")
    with (
        running(create_app(installation.settings)) as transport,
        httpx.Client(transport=transport, base_url="http://testserver") as client,
    ):
        yield client, installation


def by_name(exported: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    spans = exported.get_finished_spans()
    found = {span.name: span for span in spans}
    assert len(found) == len(spans), [span.name for span in spans]
    return found


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def body(source: str) -> dict[str, str]:
    return {"problem": "relu", "code": f"class ModelNew: ...\n{source}\n", "device": "cpu", "size": "smoke"}


def test_one_trace_from_the_request_to_the_verdict(
    exported: InMemorySpanExporter, http: tuple[httpx.Client, Installation]
) -> None:
    client, installation = http
    posted = client.post("/api/v1/submissions", json=body("# evaluate: sleep 0.1"), headers={"traceparent": GIVEN})
    submission_id = posted.json()["id"]
    worker = grader(installation)
    worker.build()
    worker.evaluate()
    assert installation.read(submission_id).status == Status.DONE
    spans = by_name(exported)
    request = spans["POST /api/v1/submissions"]
    assert set(spans) == {request.name, "build wait", "build", "evaluate wait", "evaluate", "trials"}
    assert {span.context.trace_id for span in spans.values()} == {int(GIVEN.split("-")[1], 16)}
    assert parent(request) == int(GIVEN.split("-")[2], 16)
    for name in ("build wait", "build", "evaluate wait", "evaluate"):
        assert parent(spans[name]) == request.context.span_id
    assert parent(spans["trials"]) == spans["evaluate"].context.span_id
    for span in (request, spans["build"], spans["evaluate"]):
        assert (span.attributes or {})["kerneljudge.submission"] == submission_id
    assert (request.attributes or {})["http.response.status_code"] == 202
    stages = [spans[name] for name in ("build wait", "build", "evaluate wait", "evaluate")]
    times = [moment for span in stages for moment in (span.start_time or 0, span.end_time or 0)]
    assert all(later - earlier > -50_000_000 for earlier, later in pairwise(times)), times


def test_a_fault_of_ours_is_an_error_of_its_span(
    exported: InMemorySpanExporter, http: tuple[httpx.Client, Installation]
) -> None:
    client, installation = http
    client.post("/api/v1/submissions", json=body("# build: fault")).raise_for_status()
    grader(installation).build()
    span = by_name(exported)["build"]
    assert span.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


def test_each_submission_of_a_batch_has_a_trace_linked_to_the_request(
    exported: InMemorySpanExporter, http: tuple[httpx.Client, Installation]
) -> None:
    client, installation = http
    answer = client.post("/api/v1/batches", json={"submissions": [body("# 1"), body("# 2")]})
    assert answer.status_code == 202, answer.text
    with installation.readers() as session:
        traces = set(session.scalars(select(Submission.traceparent)))
    spans = exported.get_finished_spans()
    (request,) = [span for span in spans if span.name == "POST /api/v1/batches"]
    begun = [span for span in spans if span.name == "submission"]
    assert len(traces) == len(begun) == 2
    for span in begun:
        assert span.parent is None
        assert [link.context.span_id for link in span.links] == [request.context.span_id]
        assert any(f"{span.context.trace_id:032x}-{span.context.span_id:016x}" in str(each) for each in traces)


def test_those_that_are_evaluated_together_have_a_trace_each(
    exported: InMemorySpanExporter, http: tuple[httpx.Client, Installation]
) -> None:
    client, installation = http
    answer = client.post("/api/v1/batches", json={"submissions": [body("# evaluate: sleep 0.1"), body("# 2")]})
    assert answer.status_code == 202, answer.text
    worker = grader(installation, together=2)
    for _ in range(2):
        worker.build()
    worker.evaluate()
    assert "together 2" in installation.journal
    with installation.readers() as session:
        rows = session.scalars(select(Submission).order_by(Submission.queue_rank)).all()
    traces = {row.id: str(row.traceparent).split("-")[1] for row in rows}
    spans = exported.get_finished_spans()
    evaluated = {(span.attributes or {})["kerneljudge.submission"]: span for span in spans if span.name == "evaluate"}
    assert {each: f"{span.context.trace_id:032x}" for each, span in evaluated.items()} == traces
    (slept,) = [span for span in spans if span.name == "trials"]
    assert (parent(slept), f"{slept.context.trace_id:032x}") == (
        evaluated[rows[0].id].context.span_id,
        traces[rows[0].id],
    )


def test_who_only_asks_whether_we_are_there_leaves_no_trace(
    exported: InMemorySpanExporter, http: tuple[httpx.Client, Installation]
) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert http[0].get(path).status_code == 200
    assert exported.get_finished_spans() == ()


def test_nothing_is_traced_unless_asked_for(http: tuple[httpx.Client, Installation]) -> None:
    client, installation = http
    assert not tracing.enabled()
    submission_id = client.post("/api/v1/submissions", json=body(""), headers={"traceparent": GIVEN}).json()["id"]
    assert installation.read(submission_id).traceparent is None
    grader(installation).build()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "must be otlp, console or none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "must be http/protobuf"),
    ],
)
def test_what_cannot_be_met_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidSettings, match=message):
        tracing.configure("kerneljudge-test")


SCRIPT = """
from runtime import tracing
tracing.configure("kerneljudge-test")
with tracing.span("work", None):
    print(tracing.enabled())
"""


def test_attributes_of_the_environment_reach_each_span() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment |= {
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=mine,deployment.environment.name=trial",
    }
    argv = [sys.executable, "-c", SCRIPT]
    printed = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(printed.stdout.partition("\n")[2])["resource"]["attributes"]
    assert (found["service.name"], found["deployment.environment.name"]) == ("mine", "trial")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "False"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, "False"),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "console"}, "False"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "True"),
    ],
)
def test_a_process_traces_by_its_environment(given: dict[str, str], expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    argv = [sys.executable, "-c", SCRIPT]
    printed = subprocess.run(argv, cwd=ROOT, env={**environment, **given}, capture_output=True, text=True, check=True)
    first, _, rest = printed.stdout.partition("\n")
    assert first == expected
    if expected == "True":
        span = json.loads(rest)
        assert (span["name"], span["resource"]["attributes"]["service.name"]) == ("work", "kerneljudge-test")
    else:
        assert not rest
