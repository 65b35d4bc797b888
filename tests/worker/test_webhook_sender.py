"""Webhooks: sent when a batch ends, signed, tried again, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.server
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from evaluator.candidates.candidate import Candidate
from storage.batches.batches import Batches, BatchLine
from storage.batches.webhooks import InvalidUrl, Webhooks, checked_secret, checked_url, standard_signature
from storage.models import BatchStatus, Webhook
from storage.submissions.deduplication import Ranks
from storage.submissions.listing import page_of_submissions
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import Submissions
from tests.processes import wait_until
from tests.worker.conftest import Installation
from tests.worker.test_reconciler import reconciler
from worker.webhook_sender import WebhookSender

Install = Callable[..., Installation]
SECRET = "a shared secret"
ROOT = Path(__file__).parents[2]


class Receiver(httpx.AsyncBaseTransport):
    """Answers what it is told to, then 204."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else 204
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer, headers={"Location": "http://elsewhere/"})


def over(installation: Installation) -> str:
    """A batch of one that is over."""
    candidate = Candidate("x", hashlib.sha256(b"x").hexdigest(), "code")
    new = NewSubmission(installation.problem, candidate, "cpu", "smoke")
    with installation.sessions.begin() as session:
        batches = Batches(session)
        batch = batches.create(name="n", webhook=("http://receiver/hook", SECRET))
        batches.add(batch.id, [BatchLine(1, new)], [], Ranks())
        batches.received(batch.id, "")
        assert not Webhooks(session).is_due()
        waiting = next(each for each in page_of_submissions(session).items if each.finished_at is None)
        Submissions(session).cancel(waiting.id)
        assert Webhooks(session).is_due()
    return batch.id


def webhook_sender(installation: Installation, receiver: Receiver) -> WebhookSender:
    return WebhookSender(installation.sessions, installation.readers, interval_s=0.05, transport=receiver)


class Dripping(httpx.AsyncBaseTransport):
    """Answers byte by byte, and never to the end; of other hosts than ``slow`` at once."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        while request.url.host == "slow":
            await asyncio.sleep(0.01)
        return httpx.Response(204)


def row(installation: Installation, batch_id: str) -> Webhook:
    with installation.readers() as session:
        webhook = Batches(session).webhook_of(batch_id)
    assert webhook is not None
    return webhook


def let_time_pass(installation: Installation) -> None:
    with installation.sessions.begin() as session:
        session.execute(update(Webhook).where(Webhook.due_at.is_not(None)).values(due_at=datetime.now(UTC)))


def test_the_end_of_a_batch_is_told_once_and_signed(install: Install) -> None:
    installation, receiver = install(), Receiver()
    batch_id = over(installation)
    one = webhook_sender(installation, receiver)
    assert (one.deliver(), one.deliver()) == (1, 0)
    (request,) = receiver.requests
    signed = request.headers["X-Kerneljudge-Timestamp"].encode() + b"." + request.content
    expected = "sha256=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert request.headers["X-Kerneljudge-Signature"] == expected
    stated = tuple(request.headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    assert stated[:2] == (batch_id, request.headers["X-Kerneljudge-Timestamp"])
    assert stated[2] == standard_signature(SECRET, *stated[:2], request.content)
    content: dict[str, Any] = json.loads(request.content)
    assert (content["event"], content["batch"]["id"], content["batch"]["status"]) == (
        "batch.finished",
        batch_id,
        "done",
    )
    assert content["summary"]["overall"]["ungraded"] == 1
    assert SECRET not in request.content.decode()
    assert row(installation, batch_id).delivered_at is not None


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The first case is the one by which their libraries test themselves."""
    message, body = ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330"), b'{"test": 2432232314}'
    encoded = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert standard_signature(f"whsec_{encoded}", *message, body) == expected
    key = "a key of text"
    for secret in (key, "whsec_YSBrZXkgb2YgdGV4dA==", "whsec_YSBrZXkgb2YgdGV4dA"):
        assert standard_signature(checked_secret(secret), *message, body) == standard_signature(key, *message, body)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_=", "whsec_no base64", "whsec_abcde", "whsec_ä"])
def test_a_secret_that_says_to_be_base64_is(secret: str) -> None:
    with pytest.raises(ValueError, match="after whsec_"):
        checked_secret(secret)
    assert standard_signature(secret, "id", "0", b"").startswith("v1,")  # as an older batch may have it


def test_what_was_not_taken_is_sent_again_after_longer_and_longer_pauses(install: Install) -> None:
    installation = install()
    receiver = Receiver(500, 302, httpx.ConnectError("nobody is there"))
    batch_id = over(installation)
    one = webhook_sender(installation, receiver)
    pauses = []
    for words in ("500", "302", "no connection to the receiver"):
        assert one.deliver() == 1
        webhook = row(installation, batch_id)
        assert words in webhook.message
        assert "nobody is there" not in webhook.message, "it may tell of the sender's network"
        assert webhook.due_at is not None
        pauses.append(webhook.due_at - datetime.now(UTC))
        assert one.deliver() == 0
        let_time_pass(installation)
    assert pauses[0] < timedelta(seconds=31) < pauses[1] < timedelta(seconds=61) < pauses[2]
    assert one.deliver() == 1
    assert (row(installation, batch_id).attempts, row(installation, batch_id).message) == (4, "")
    # Where a redirect leads, nobody has checked.
    assert {request.url.host for request in receiver.requests} == {"receiver"}


def test_an_attempt_that_died_is_made_again(install: Install) -> None:
    installation, receiver = install(), Receiver()
    batch_id = over(installation)
    with installation.sessions.begin() as session:
        first = Webhooks(session).take_due()
        assert first is not None
        assert Webhooks(session).take_due() is None
    let_time_pass(installation)
    assert webhook_sender(installation, receiver).deliver() == 1
    with installation.sessions.begin() as session:
        # Who comes too late says nothing any more.
        Webhooks(session).record(first, "the receiver hung up")
    assert row(installation, batch_id).message == ""


def test_after_the_clock_was_set_back_an_attempt_waits_no_longer_than_ever(install: Install) -> None:
    installation, receiver = install(), Receiver()
    over(installation)
    with installation.sessions.begin() as session:
        session.execute(update(Webhook).values(due_at=datetime.now(UTC) + timedelta(minutes=59)))
    assert webhook_sender(installation, receiver).deliver() == 0
    with installation.sessions.begin() as session:
        session.execute(update(Webhook).values(due_at=datetime.now(UTC) + timedelta(days=1)))
    assert webhook_sender(installation, receiver).deliver() == 1


def test_after_a_day_nobody_is_told_any_more(install: Install) -> None:
    installation, receiver = install(), Receiver(*[500] * 40)
    over(installation)
    one = webhook_sender(installation, receiver)
    for _ in range(40):
        one.deliver()
        let_time_pass(installation)
    assert len(receiver.requests) == 30


def test_it_goes_on_by_itself(install: Install) -> None:
    installation, receiver = install(), Receiver(httpx.ReadTimeout("slow"))
    with webhook_sender(installation, receiver):
        batch_id = over(installation)
        wait_until(lambda: receiver.requests, "a first attempt")
        wait_until(lambda: row(installation, batch_id).message, "its outcome")
        let_time_pass(installation)
        wait_until(lambda: row(installation, batch_id).delivered_at, "a second attempt")


@pytest.mark.parametrize(
    "url",
    ["ftp://a/", "file:///etc/passwd", "http:", "http://", "//a/", "a", "http://a b/", "http://u:p@a/", "http://a:x/",
     "http://a:0/", "http://\u00e4/", "http://a/\n", "http://[::1", "javascript:alert(1)", "", "http://a..b/",
     "http://.a/", "http://xn--a.com/", "http://xn--/", f"http://{'a' * 64}.b/"],
)  # fmt: skip
def test_an_address_that_is_none_of_the_web_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        checked_url(url)


@pytest.mark.parametrize(
    "url", ["http://a/", "https://a:8443/x?y=z", "http://[::1]:80/", "http://a.b./", "https://xn--fa-hia.de/"]
)
def test_other_addresses_are_taken(url: str) -> None:
    assert checked_url(url) == url


def test_a_batch_whose_server_died_is_cancelled(install: Install) -> None:
    installation = install()
    candidate = Candidate("x", hashlib.sha256(b"x").hexdigest(), "code")
    with installation.sessions.begin() as session:
        batches = Batches(session)
        batch = batches.create()
        new = NewSubmission(installation.problem, candidate, "cpu", "smoke")
        batches.add(batch.id, [BatchLine(1, new)], [], Ranks())
        assert batches.cancel_abandoned() == 0
        assert batches.cancel_abandoned(datetime.now(UTC) + timedelta(minutes=9)) == 0
        assert batches.cancel_abandoned(datetime.now(UTC) + timedelta(minutes=11)) == 1
        cancelled = batches.get(batch.id)
        assert cancelled is not None
        assert (cancelled.state, cancelled.finished_at is not None) == (BatchStatus.CANCELLED, True)
        assert "never came in whole" in cancelled.message
    # A pass of the reconciler looks for such batches as well.
    reconciler(installation).reconcile()


class Listener(http.server.BaseHTTPRequestHandler):
    """Takes what it is sent, and lets the test know."""

    told: ClassVar[queue.Queue[bytes]] = queue.Queue()

    def do_POST(self) -> None:
        self.told.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        pass


def test_a_process_of_its_own_delivers_until_it_is_told_to_stop(install: Install, tmp_path: Path) -> None:
    installation = install()
    batch_id = over(installation)
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "KERNELJUDGE_DATA_DIR": str(installation.settings.data_dir),
        "KERNELJUDGE_DATABASE_URL": installation.settings.database_url,
    }
    healthy = [sys.executable, "docker/webhook_sender_health.py"]
    assert subprocess.run(healthy, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)}).returncode == 1
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with installation.sessions.begin() as session:
            session.execute(update(Webhook).values(url=f"http://127.0.0.1:{server.server_port}/hook"))
        process = subprocess.Popen([sys.executable, "-m", "worker.webhook_sender"], cwd=ROOT, env=environment)
        try:
            assert json.loads(Listener.told.get(timeout=60))["batch"]["id"] == batch_id
            wait_until(lambda: row(installation, batch_id).delivered_at is not None, "that it was noted")
            assert subprocess.run(healthy, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)}).returncode == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
            an_hour_ago = time.time() - 3600
            os.utime(tmp_path / "kerneljudge-webhook-sender", (an_hour_ago, an_hour_ago))
            assert subprocess.run(healthy, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)}).returncode == 1
        finally:
            process.kill()
            process.wait()
            server.shutdown()


def test_a_receiver_that_never_ends_its_answer_keeps_nobody_waiting(install: Install) -> None:
    installation = install()
    slow = over(installation)
    with installation.sessions.begin() as session:
        session.execute(update(Webhook).values(url="http://slow/hook", due_at=datetime.now(UTC) + timedelta(hours=1)))
    quick = over(installation)
    let_time_pass(installation)
    looked: list[float] = []
    one = WebhookSender(
        installation.sessions,
        installation.readers,
        interval_s=60,
        transport=Dripping(),
        attempt_s=0.5,
        alive=lambda: looked.append(0.0),
    )
    assert one.deliver() == 2
    assert row(installation, slow).message == "no answer within 0.5 s"
    assert row(installation, slow).delivered_at is None
    assert row(installation, quick).delivered_at is not None
    assert len(looked) == 2


def test_a_webhook_sender_that_cannot_look_does_not_say_that_it_is_alive(install: Install) -> None:
    installation = install()
    looked: list[int] = []

    def away() -> Any:
        raise OperationalError("SELECT", {}, Exception("the database is away"))

    readers: Any = away
    one = WebhookSender(installation.sessions, readers, interval_s=60, alive=lambda: looked.append(1))
    with pytest.raises(OperationalError):
        one.deliver()
    assert not looked


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example", "xn--a.invalid"])
def test_a_host_that_is_no_name_ends_no_pass(install: Install, host: str) -> None:
    """An address from before they were checked."""
    installation = install()
    batch_id = over(installation)
    with installation.sessions.begin() as session:
        session.get_one(Webhook, batch_id).url = f"http://{host}/"
    one = WebhookSender(installation.sessions, installation.readers, interval_s=0.05)
    assert one.deliver() == 1
    assert row(installation, batch_id).message in ("no connection to the receiver", "the address is not valid")


def test_a_webhook_to_an_inner_address_tells_its_owner_no_more(install: Install) -> None:
    installation = install()
    batch_id = over(installation)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        with installation.sessions.begin() as session:
            webhook = session.get_one(Webhook, batch_id)
            webhook.url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        one = WebhookSender(installation.sessions, installation.readers, interval_s=0.05)
        assert one.deliver() == 1
        with pytest.raises(TimeoutError):
            server.accept()
    assert row(installation, batch_id).message.startswith("the service sends webhooks to public addresses alone")
