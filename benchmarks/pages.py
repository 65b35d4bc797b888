"""The time of pages with many submissions behind them: ``python -m benchmarks.pages --submissions 1000000``.

It fills a database (a private PostgreSQL, or SQLite) by ``benchmarks.page_data``, starts the API on it, and requests
each page repeatedly over HTTP. It prints the median and the 95th percentile of the server's answer, the page's size,
and its number of queries.

``--keep FOLDER`` makes the database there, or uses the one that is there. ``--serve`` leaves the service running for a
visit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
from fastapi.testclient import TestClient
from sqlalchemy import event

from api.app import create_app
from benchmarks.page_data import POPULAR, fill
from evaluator.interpreter import python_command, python_environment
from runtime.settings import Settings
from tests.services import free_port, postgresql_server

_ROOT: Final = Path(__file__).parent.parent
_PROBLEMS: Final = _ROOT / "reference_models"
_READY_S: Final = 60.0
_WARM_UP: Final = 3
_GOAL_MS: Final = 50.0
_BATCH_MARK: Final = "batch"


def main() -> int:
    """Run the benchmark. Return 1 where a page of the leaderboards misses its goal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("--submissions", type=int, default=100_000)
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="sqlite")
    parser.add_argument("--requests", type=int, default=60, help="for each page")
    parser.add_argument("--keep", type=Path, help="a folder for the database of SQLite, made or used again")
    parser.add_argument("--serve", action="store_true", help="measure nothing, and serve until Ctrl-C")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kerneljudge-pages-")))
        url = stack.enter_context(_postgresql()) if options.database == "postgresql" else None
        settings = _settings(folder, url)
        mark = folder / _BATCH_MARK
        if not mark.exists():
            begin = time.monotonic()
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text(fill(settings, options.submissions, _PROBLEMS))
            print(f"{options.submissions} submissions in {time.monotonic() - begin:.0f} s", flush=True)
        port = free_port()
        stack.enter_context(_server(settings, port))
        base = f"http://127.0.0.1:{port}"
        if options.serve:
            print(f"The pages are at {base}. Ctrl-C stops.", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(10**6)
            return 0
        return _measure(settings, base, _pages(mark.read_text()), options.requests)


def _pages(batch: str) -> dict[str, bool]:
    """Return the pages, and whether the goal applies to them."""
    board = f"/problems/{POPULAR}"
    return {
        "/": True,
        board: True,
        f"{board}?device=NVIDIA+H200": True,
        f"{board}?track=training": True,
        f"{board}?author=ada": True,
        f"{board}?label=one+pass&device=cpu": True,
        f"{board}?after=1000": True,
        "/problems/gemm": True,
        "/overall": True,
        "/overall?track=training": True,
        f"/api/v1/leaderboard?problem={POPULAR}&device=cuda": True,
        "/submissions": True,
        "/submissions?verdict=passed": True,
        "/submissions?verdict=rejected": True,
        "/submissions?verdict=wrong_dtype": True,
        f"/submissions?problem={POPULAR}&verdict=compile_error": True,
        "/submissions?author=ada&verdict=rejected": True,
        "/submissions?author=ada": True,
        f"/submissions/sub_{42:022d}": False,
        "/batches": False,
        f"/batches/{batch}": False,
        "/workers": False,
        "/method": False,
        "/docs": False,
    }


def _measure(settings: Settings, base: str, pages: dict[str, bool], requests: int) -> int:
    missed = False
    print(f"{'page':<58}{'p50 ms':>8}{'p95 ms':>8}{'KB':>8}{'queries':>9}")
    with httpx.Client(base_url=base, timeout=120, trust_env=False) as client, _counter(settings) as count:
        for path, held in pages.items():
            times = []
            for number in range(_WARM_UP + requests):
                begin = time.perf_counter()
                answer = client.get(path).raise_for_status()
                if number >= _WARM_UP:
                    times.append(1000 * (time.perf_counter() - begin))
            p95 = statistics.quantiles(times, n=20, method="inclusive")[-1]
            late = held and p95 > _GOAL_MS
            missed |= late
            print(
                f"{path:<58}{statistics.median(times):>8.1f}{p95:>8.1f}{len(answer.content) / 1000:>8.1f}"
                f"{count(path):>9}{'  above the goal' if late else ''}",
                flush=True,
            )
    return int(missed)


@contextlib.contextmanager
def _counter(settings: Settings) -> Iterator[Callable[[str], int]]:
    """Yield a function that counts the statements of a page, in an application of its own."""
    app = create_app(settings)
    statements: list[str] = []
    event.listen(app.state.services.read_engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    with TestClient(app) as client:

        def count(path: str) -> int:
            statements.clear()
            client.get(path).raise_for_status()
            return len(statements)

        yield count


@contextlib.contextmanager
def _postgresql() -> Iterator[str]:
    with postgresql_server() as url:
        yield f"{url}/postgres"


@contextlib.contextmanager
def _server(settings: Settings, port: int) -> Iterator[None]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KERNELJUDGE_")},
        "KERNELJUDGE_DATA_DIR": str(settings.data_dir),
        "KERNELJUDGE_DATABASE_URL": settings.database_url,
        "KERNELJUDGE_PORT": str(port),
        # The benchmark measures making a page, not giving out a stored one.
        "KERNELJUDGE_ANSWER_AGE_S": "0",
    }
    command, environment = python_command("-m", "api"), python_environment(environment)
    process = subprocess.Popen(command, cwd=_ROOT, env=environment, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _READY_S
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).is_success:
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the API did not start")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _settings(folder: Path, url: str | None) -> Settings:
    plain = Settings(data_dir=folder / "data", problems_dir=_PROBLEMS, answer_age_s=0)
    return plain if url is None else plain.model_copy(update={"database_url": url})


if __name__ == "__main__":
    sys.exit(main())
