"""What a fresh interpreter loads: no torch outside the judge and the runner, no server in the client."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVER = ("torch", "fastapi", "celery", "kombu", "sqlalchemy", "uvicorn", "starlette", "alembic", "pydantic")


def loaded_by(*modules: str) -> set[str]:
    """The top-level packages in a new interpreter that has imported ``modules``."""
    code = f"import sys, {', '.join(modules)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(result.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "api",
        "api.app",
        "api.server",
        "worker",
        "worker.__main__",
        "kerneljudge",
        "kerneljudge.cli.app",
        "storage.queue.celery_app",
        "storage.models",
        "evaluator.engine",
        "evaluator.candidates.candidate",
        "evaluator.source_flags",
        "evaluator.problems.vetting.run",
        "evaluator.problems.importing",
        "kerneljudge_server.import_problems",
    ],
)  # fmt: skip
def test_nothing_outside_the_evaluators_processes_loads_torch(module: str) -> None:
    assert "torch" not in loaded_by(module)


@pytest.mark.parametrize(
    "module",
    [
        "kerneljudge",
        "kerneljudge.cli.app",
        "kerneljudge.client",
        "kerneljudge_server.local",
        "kerneljudge_server.serve",
    ],
)
def test_the_client_loads_nothing_of_the_server(module: str) -> None:
    assert loaded_by(module).isdisjoint(SERVER)
