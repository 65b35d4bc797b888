"""A real service, with workers, and a real Chromium that looks at it: one of each for all tests here.

Without a Chromium these tests fail; they are never skipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from demo.service import running_service
from evaluator.evaluation import Verdict
from evaluator.problems.loading import load_problems
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from storage.database import create_engine_for, session_factory
from tests.api.seeds import failed, passed
from tests.browser.seeding import HOSTILE, TURNED, Seeding
from tests.services import ServiceMissing

PROBLEMS = Path(__file__).parents[2] / "reference_models"
PATIENCE_MS = 90_000
"""How long a real evaluation may take on a busy machine."""


@dataclass(frozen=True)
class Service:
    """Where the service is, and what was put into it beforehand: pages by what they show."""

    url: str
    pages: dict[str, str]


# Not for the whole session: Playwright has an event loop of its own in this thread for as long as it lives.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    binary = shutil.which("chromium")
    if binary is None:
        raise ServiceMissing("chromium is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        # In containers, and as root, Chromium's own sandbox does not start.
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """``kerneljudge serve`` on the CPU, with some results of before."""
    folder = tmp_path_factory.mktemp("browser")
    with running_service(folder, devices="cpu") as (url, _):
        yield Service(url, _seeded(folder))


@pytest.fixture
def visit(browser: Browser, service: Service) -> Iterator[Callable[..., Page]]:
    """Opens a page in a browser of its own, which has to stay free of errors and dialogs."""
    contexts: list[BrowserContext] = []
    said: list[str] = []

    def visit(path: str, **options: Any) -> Page:
        context = browser.new_context(base_url=service.url, **options)
        contexts.append(context)
        context.set_default_timeout(15_000)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text) if _is_error(message) else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(path)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert said == []


def _is_error(message: ConsoleMessage) -> bool:
    # A page may be the answer to what cannot be done: that alone is no error of the page.
    return message.type == "error" and "Failed to load resource" not in message.text


def _seeded(folder: Path) -> dict[str, str]:
    settings = Settings(data_dir=folder / "data", problems_dir=PROBLEMS)
    engine = create_engine_for(settings)
    problems: dict[str, Problem] = load_problems(PROBLEMS)
    seeding = Seeding(session_factory(engine), problems)
    for number, (author, device) in enumerate([("ann", "a processor"), ("bob", "a processor"), ("ann", "another one")]):
        evaluation = passed(problems["gelu"], speedup=1.5 + number, environment={"device_name": device})
        best = seeding.submission("gelu", f"class ModelNew: a = {number}\n", evaluation, author, f"candidate {number}")
    mismatch = {
        "tensor": "the output", "shape": [64, 96], "dtype": "float32", "inputs": "signed", "wrong": 96, "total": 6144,
        "nan": 0, "infinite": 0, "patterns": [{"code": "tail", "sentence": "only the last row is wrong"}],
        "worst": [
            {"index": [63, 5 * each], "expected": 0.5, "got": 0.75, "error": 0.25, "allowed": 1e-4} for each in range(8)
        ],
    }  # fmt: skip
    wrong = failed(problems["gelu"], Verdict.WRONG_OUTPUT, "the output differs", details={"mismatch": mismatch})
    hostile = passed(
        problems["softmax"], message=HOSTILE, notes=(HOSTILE,), log="x" * 100_000,
        environment={"device_name": HOSTILE, HOSTILE: TURNED}, details={HOSTILE: "x" * 100_000},
    )  # fmt: skip
    source = f"class ModelNew: ...\nname = '''{HOSTILE}'''\nturned = '{TURNED}'\nlong = '{'x' * 100_000}'\n"
    metadata = {"model": "m-7b", HOSTILE: [TURNED, "y" * 1000], "step": 3}
    child = seeding.submission(
        "gelu", "class ModelNew: c = 1", wrong, "bob", "derived", parent=best, metadata=metadata
    )  # fmt: skip
    batch, other = seeding.batch(["nothing", "less"]), seeding.batch(["nothing at all"])
    found = {
        "passed": f"/submissions/{best}",
        "derived": f"/submissions/{child}",
        "wrong": f"/submissions/{seeding.submission('gelu', 'class ModelNew: b = 1', wrong, 'bob', 'wrong')}",
        "hostile": f"/submissions/{seeding.submission('softmax', source, hostile, TURNED + HOSTILE, HOSTILE)}",
        "batch": f"/batches/{batch}",
        "comparison": f"/batches/{batch}/comparison?other={other}",
    }
    engine.dispose()
    return {
        "home": "/", "problem": "/problems/gelu", "empty problem": "/problems/gemm",
        "hostile problem": "/problems/softmax", "overall": "/overall", "submissions": "/submissions",
        "batches": "/batches", "workers": "/workers", "method": "/method", "api": "/docs", **found,
    }  # fmt: skip
