"""Prometheus metrics: requests as they come, everything else counted in the database when it is asked for."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.orm import Session, sessionmaker

from api.queries import count_by_outcome, pending_diagnoses, queue_depths
from evaluator.config import DEVICE_KINDS
from storage.models import Stage
from storage.queue import DIAGNOSIS_QUEUES, QUEUES, diagnosis_queue, queue_name
from storage.workers import list_workers

__all__ = ["HttpMetrics", "StateCollector"]

# Up to five minutes: a long poll is a request as well.
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)


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
        """Count one request. ``status`` 0: the client went away before there was an answer."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)


class StateCollector(Collector):
    """What the database says at the moment of the scrape."""

    def __init__(self, sessions: sessionmaker[Session]) -> None:
        self._sessions = sessions

    def describe(self) -> list[Metric]:
        # Without this, registering would ask the database before there is one.
        return []

    def collect(self) -> Iterator[Metric]:
        with self._sessions() as session:
            outcomes = count_by_outcome(session)
            depths = queue_depths(session)
            pending = pending_diagnoses(session)
            workers = list_workers(session)
        submissions = GaugeMetricFamily(
            "kerneljudge_submissions", "Submissions by status and verdict.", labels=["status", "verdict"]
        )
        for (status, verdict), count in sorted(outcomes.items()):
            submissions.add_metric([status, verdict], count)
        yield submissions

        waiting: Tally[str] = Tally()
        stages: tuple[Stage, ...] = ("build", "evaluate")
        for stage in stages:
            for kind in DEVICE_KINDS:
                waiting[queue_name(stage, kind)] += depths.get((stage, kind), 0)
        for tool, count in pending.items():
            waiting[diagnosis_queue(tool)] += count
        depth = GaugeMetricFamily(
            "kerneljudge_queue_depth", "Submissions and diagnoses that wait, by queue.", labels=["queue"]
        )
        for queue in (*QUEUES, *DIAGNOSIS_QUEUES):
            depth.add_metric([queue], waiting[queue])
        yield depth

        alive = Tally(queue for worker in workers if worker.alive for queue in worker.queues)
        serving = GaugeMetricFamily("kerneljudge_workers_alive", "Workers alive, by queue.", labels=["queue"])
        for queue in (*QUEUES, *DIAGNOSIS_QUEUES):
            serving.add_metric([queue], alive[queue])
        yield serving
