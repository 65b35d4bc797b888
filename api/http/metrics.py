"""Prometheus metrics. Requests are counted as they come; everything else is read from the database at each scrape.

So every process of the API reports the same queues, workers and submissions, whichever process was there before it.
Finished work is counted when it ends (``storage.metrics.counters``); only work under way is counted here.

Series that are known beforehand exist from the beginning, with 0. Prometheus cannot tell a first event from a series
that existed before.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.orm import Session, sessionmaker

from api.records.queries import (
    batches_under_way,
    count_by_outcome,
    count_verdicts,
    due_webhooks,
    pending_diagnoses,
    waiting_submissions,
)
from evaluator.config import DEVICE_KINDS
from evaluator.evaluation import Verdict
from storage.metrics.counters import Histogram as Times
from storage.metrics.counters import read_counts, read_times
from storage.metrics.metrics import (
    ACCEPTED,
    ATTEMPTS,
    BUILDS,
    CANDIDATE_FAULTS,
    DELIVERIES,
    MACHINE_FAULTS,
    STAGE_SECONDS,
    machine_faults,
)
from storage.queue.celery_app import DIAGNOSIS_QUEUES, QUEUES, diagnosis_queue
from storage.queue.workers import Worker, list_workers, place_of

__all__ = ["HttpMetrics", "StateCollector"]

# The buckets reach five minutes, because a long poll is a request as well.
_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
_COUNTED: Final = (ACCEPTED, ATTEMPTS, BUILDS, CANDIDATE_FAULTS, DELIVERIES)
_VIAS: Final = ("single", "batch")
_BATCH_STATUSES: Final = ("receiving", "running")

Labels = tuple[str, ...]
_Family = TypeVar("_Family", GaugeMetricFamily, CounterMetricFamily)


class HttpMetrics:
    """Requests and their durations by method and route."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "kerneljudge_http_requests", "HTTP requests answered.", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "kerneljudge_http_request_seconds",
            "Time from the request's head to the end of its answer.",
            ["method", "route"],
            buckets=_BUCKETS_S,
            registry=registry,
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request. ``status`` is 0 where the client went away before there was an answer."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)


class StateCollector(Collector):
    """The state of the database at the moment of the scrape."""

    def __init__(self, sessions: sessionmaker[Session]) -> None:
        self._sessions = sessions

    def describe(self) -> list[Metric]:
        # Without this, registering would query the database before it exists.
        return []

    def collect(self) -> Iterator[Metric]:
        parts: tuple[Callable[[Session], Iterator[Metric]], ...] = (_submissions, _queues, _workers, _work, _batches)
        with self._sessions() as session:
            # Everything is read before anything is written out. A connection must not wait for a scraper that reads
            # slowly.
            found = [metric for part in parts for metric in part(session)]
        yield from found


def _submissions(session: Session) -> Iterator[Metric]:
    outcomes = {(str(status), verdict): number for (status, verdict), number in count_by_outcome(session).items()}
    yield _gauge("submissions", "Submissions by status and verdict.", ("status", "verdict"), outcomes)
    verdicts = {**_zeros((DEVICE_KINDS, tuple(map(str, Verdict)))), **count_verdicts(session)}
    yield _counter("verdicts", "Evaluations by verdict.", ("device", "verdict"), verdicts)


def _queues(session: Session) -> Iterator[Metric]:
    waiting = waiting_submissions(session)
    depths = Tally(dict.fromkeys((*QUEUES, *DIAGNOSIS_QUEUES), 0))
    for (queue, _), found in waiting.items():
        depths[queue] += found.count
    for tool, number in pending_diagnoses(session).items():
        depths[diagnosis_queue(tool)] += number
    by_queue = {(queue,): number for queue, number in depths.items()}
    yield _gauge("queue_depth", "Submissions and diagnoses that wait, by queue.", ("queue",), by_queue)
    # With nothing in the queue, the longest wait is 0.
    ages = dict.fromkeys(((queue, via) for queue in QUEUES for via in _VIAS), 0.0)
    ages |= {key: found.oldest_s for key, found in waiting.items()}
    description = "How long ago the oldest submission that waits in a queue was handed in, by how it was."
    yield _gauge("queue_oldest_seconds", description, ("queue", "via"), ages)


def _workers(session: Session) -> Iterator[Metric]:
    living = [worker for worker in list_workers(session) if worker.alive]
    serving = Tally({(queue,): 0 for queue in (*QUEUES, *DIAGNOSIS_QUEUES)})
    serving.update((queue,) for worker in living for queue in worker.queues)
    yield _gauge("workers_alive", "Workers alive, by queue.", ("queue",), serving)
    who = {worker.id: (worker.id, worker.kind, *place_of(worker.id)) for worker in living}
    labels = ("worker", "kind", "host", "device")
    busy = {who[worker.id]: worker.busy_s for worker in living}
    yield _counter("worker_busy_seconds", "For how long a living worker has had work.", labels, busy)
    layers = {(*who[worker.id], *layer): there for worker in living for layer, there in _layers(worker)}
    description = "Whether a worker's sandbox has a layer (1) or the kernel refuses it (0)."
    yield _gauge("worker_sandbox_layer", description, (*labels, "layer", "optional"), layers)


def _layers(worker: Worker) -> Iterator[tuple[Labels, float]]:
    """Yield the sandbox layers that a worker reported: name and whether it is optional, with 1 if it is there."""
    for layer in worker.capabilities.get("sandbox", ()):
        yield (str(layer["layer"]), str(bool(layer["optional"])).lower()), float(layer["there"])


def _work(session: Session) -> Iterator[Metric]:
    for what, counts in read_counts(session, _COUNTED).items():
        yield _counter(what.name, what.description, what.labels, {**_zeros(what.values), **counts})
    yield _counter(MACHINE_FAULTS.name, MACHINE_FAULTS.description, MACHINE_FAULTS.labels, machine_faults(session))
    histogram = HistogramMetricFamily(
        f"kerneljudge_{STAGE_SECONDS.name}", STAGE_SECONDS.description, labels=STAGE_SECONDS.labels
    )
    bounds = [*map(str, STAGE_SECONDS.bounds_s), "+Inf"]
    none = Times((0,) * len(bounds), 0.0)
    times = {**dict.fromkeys(_zeros(STAGE_SECONDS.values), none), **read_times(session, STAGE_SECONDS)}
    for labels, found in sorted(times.items()):
        histogram.add_metric(labels, list(zip(bounds, found.up_to, strict=True)), found.sum_s)
    yield histogram


def _batches(session: Session) -> Iterator[Metric]:
    under_way = {(status,): 0 for status in _BATCH_STATUSES}
    under_way |= {(status,): number for status, number in batches_under_way(session).items()}
    yield _gauge("batches", "Batches under way.", ("status",), under_way)
    description = "Batches that are over and somebody is still to be told of."
    yield _gauge("webhooks_due", description, (), {(): due_webhooks(session)})


def _zeros(values: Sequence[Labels]) -> dict[Labels, int]:
    """Return 0 for each combination of ``values``, where there are any."""
    return dict.fromkeys(product(*values), 0) if values else {}


def _gauge(name: str, description: str, labels: Sequence[str], values: Mapping[Any, float]) -> GaugeMetricFamily:
    return _filled(GaugeMetricFamily(f"kerneljudge_{name}", description, labels=labels), values)


def _counter(name: str, description: str, labels: Sequence[str], values: Mapping[Any, float]) -> CounterMetricFamily:
    return _filled(CounterMetricFamily(f"kerneljudge_{name}", description, labels=labels), values)


def _filled(family: _Family, values: Mapping[Any, float]) -> _Family:
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family
