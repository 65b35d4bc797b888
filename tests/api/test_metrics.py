"""What /metrics says of hand-made data, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event, update

from api.app import create_app
from api.services.container import Services
from evaluator.evaluation import Verdict
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from storage.batches.batches import Batches
from storage.grading.claims import Claims
from storage.models import StoredWorker, Submission
from storage.queue.workers import heartbeat, register
from storage.submissions.submissions import Submissions
from tests.api.inmemory import running
from tests.api.seeds import Seeds, failed

HOST_WORKER = "gpu-host-cuda:1-17-ab12"


class Scraped:
    """An application with a database, and its metrics by name and labels."""

    def __init__(self, http: httpx.Client, seeds: Seeds, services: Services) -> None:
        self.http = http
        self.seeds = seeds
        self.services = services

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        answer = self.http.get("/metrics")
        assert answer.status_code == 200
        families = text_string_to_metric_families(answer.text)
        found = [(each.name, frozenset(each.labels.items()), each.value) for one in families for each in one.samples]
        assert len(found) == len({(name, labels) for name, labels, _ in found}), "a series is there twice"
        return {(name, labels): value for name, labels, value in found}

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((f"kerneljudge_{name}", frozenset(labels.items())))


@pytest.fixture
def scraped(settings: Settings, problems: dict[str, Problem]) -> Iterator[Scraped]:
    app = create_app(settings)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        services: Services = app.state.services
        yield Scraped(http, Seeds(services.sessions, problems), services)


def test_an_empty_service_has_every_queue_and_nothing_in_it(scraped: Scraped) -> None:
    for queue in ("build", "evaluate.cpu", "evaluate.cuda"):
        assert scraped.value("queue_depth", queue=queue) == 0
        assert scraped.value("workers_alive", queue=queue) == 0
        for via in ("single", "batch"):
            assert scraped.value("queue_oldest_seconds", queue=queue, via=via) == 0
    for status in ("queued", "building", "evaluating", "failed", "cancelled"):
        assert scraped.value("submissions", status=status, verdict="") == 0
    assert scraped.value("batches", status="running") == 0
    assert scraped.value("webhooks_due") == 0


def test_submissions_are_counted_by_how_far_they_are_and_how_they_ended(scraped: Scraped) -> None:
    seeds = scraped.seeds
    for number in range(3):
        seeds.passed(source=f"class ModelNew: ...\n# {number}\n")
    wrong = failed(seeds.problems["relu"], Verdict.WRONG_OUTPUT, "off")
    seeds.evaluate(seeds.submit(device="cuda"), wrong)
    seeds.submit(source="no python (")
    seeds.claim_build(seeds.submit())
    seeds.fault(seeds.claim_build(seeds.submit()), "no", final=True)
    waiting = seeds.submit(device="cuda")
    with seeds.sessions.begin() as session:
        Submissions(session).cancel(seeds.submit())
    expected = {
        ("done", "passed"): 3,
        ("done", "wrong_output"): 1,
        ("done", "invalid_source"): 1,
        ("building", ""): 1,
        ("failed", ""): 1,
        ("queued", ""): 1,
        ("cancelled", ""): 1,
        ("evaluating", ""): 0,
    }
    found = {
        (dict(labels)["status"], dict(labels)["verdict"]): value
        for (name, labels), value in scraped.samples().items()
        if name == "kerneljudge_submissions"
    }
    assert found == expected
    assert scraped.value("verdicts_total", device="cpu", verdict="passed") == 3
    assert scraped.value("verdicts_total", device="cuda", verdict="wrong_output") == 1
    assert scraped.value("submissions_accepted_total", device="cpu", via="single") == 7
    assert scraped.value("attempts_total", stage="evaluate", device="cpu", outcome="done") == 3
    assert scraped.value("queue_depth", queue="build") == 1, waiting


def test_the_oldest_of_a_queue_is_shown_by_how_it_was_handed_in(scraped: Scraped) -> None:
    seeds = scraped.seeds
    old, batched, built = seeds.submit(), seeds.submit(device="cuda"), seeds.submit()
    claim = seeds.claim_build(built)
    with seeds.sessions.begin() as session:
        assert Claims(session).record_built(claim, seconds=1.0, log="")
        for submission_id, minutes, queue_rank in ((old, 60, 0), (batched, 120, 7), (built, 30, 0)):
            back = claim.queued_at - timedelta(minutes=minutes)
            row = update(Submission).where(Submission.id == submission_id)
            session.execute(row.values(submitted_at=back, queue_rank=queue_rank))
    seeds.submit()
    ages = {
        (queue, via): scraped.value("queue_oldest_seconds", queue=queue, via=via)
        for queue in ("build", "evaluate.cpu")
        for via in ("single", "batch")
    }
    assert ages == {
        ("build", "single"): pytest.approx(3600, abs=60),
        ("build", "batch"): pytest.approx(7200, abs=60),
        ("evaluate.cpu", "single"): pytest.approx(1800, abs=60),
        ("evaluate.cpu", "batch"): 0,
    }
    assert scraped.value("queue_depth", queue="build") == 3


def test_stages_are_histograms(scraped: Scraped) -> None:
    scraped.seeds.passed()
    samples = scraped.samples()
    for stage in ("build_wait", "build", "evaluate_wait", "evaluate", "total"):
        labels = {"stage": stage, "device": "cpu"}
        assert scraped.value("stage_seconds_count", **labels) == 1
        buckets = [
            (float(dict(key)["le"]), value)
            for (name, key), value in samples.items()
            if name == "kerneljudge_stage_seconds_bucket" and labels.items() <= dict(key).items()
        ]
        assert [value for _, value in sorted(buckets)] == sorted(value for _, value in buckets), "they add up"
        assert max(buckets) == (float("inf"), 1)
        assert len(buckets) == 17


def test_builds_and_faults_have_their_recipe_and_device(scraped: Scraped) -> None:
    seeds = scraped.seeds
    details = {"device_fault": "misaligned address", "builds": [{"recipe": "split", "cached": True}]}
    evaluation = failed(seeds.problems["relu"], Verdict.RUNTIME_ERROR, "CUDA error", device="cuda", details=details)
    seeds.evaluate(seeds.submit(device="cuda"), evaluation)
    seeds.fault(seeds.claim_build(seeds.submit()), "the builder died")
    build = {"stage": "evaluate", "device": "cuda", "recipe": "split"}
    assert scraped.value("builds_total", **build, result="hit") == 1
    assert scraped.value("candidate_device_faults_total", host="worker", device="", kind="misaligned address") == 1
    assert scraped.value("faults_total", host="builder", device="", stage="build", kind="fault") == 1


def test_only_living_workers_show_how_busy_they_were_and_their_sandbox(scraped: Scraped) -> None:
    sandbox = [
        {"layer": "files", "there": True, "optional": False},
        {"layer": "cgroup", "there": False, "optional": True},
    ]
    with scraped.seeds.sessions.begin() as session:
        for name in (HOST_WORKER, "gone"):
            register(
                session,
                name,
                kind="evaluate",
                queues=["evaluate.cuda"],
                device="cuda:1",
                capabilities={"sandbox": sandbox},
            )
            assert heartbeat(session, name, None, busy_s=12.5)
        row = session.get_one(StoredWorker, "gone")
        row.heartbeat_at -= timedelta(minutes=5)
    who = {"worker": HOST_WORKER, "kind": "evaluate", "host": "gpu-host", "device": "cuda:1"}
    assert scraped.value("worker_busy_seconds_total", **who) == 12.5
    assert scraped.value("worker_sandbox_layer", **who, layer="files", optional="false") == 1
    assert scraped.value("worker_sandbox_layer", **who, layer="cgroup", optional="true") == 0
    assert scraped.value("workers_alive", queue="evaluate.cuda") == 1
    assert not [labels for _, labels in scraped.samples() if ("worker", "gone") in labels]


def test_batches_under_way_and_webhooks_that_are_due(scraped: Scraped) -> None:
    with scraped.seeds.sessions.begin() as session:
        batches = Batches(session)
        ids = [batches.create(webhook=("http://localhost/", "s")).id for _ in range(3)]
        batches.received(ids[0], "d")
        batches.cancel(ids[1])
    assert scraped.value("batches", status="receiving") == 1
    assert scraped.value("batches", status="running") == 0, "an empty one is over at once"
    assert scraped.value("webhooks_due") == 1


def test_a_scrape_costs_the_same_whatever_is_over(scraped: Scraped) -> None:
    scraped.seeds.passed()
    executed: list[str] = []
    engine = scraped.services.read_engine
    event.listen(engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: executed.append(statement))
    scraped.samples()
    assert executed
    for statement in executed:
        assert "FROM evaluations" not in statement
        assert "FROM attempts" not in statement
        if "FROM submissions" in statement:
            assert "submissions.status" in statement or "submissions.id = " in statement
