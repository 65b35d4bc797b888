"""Fixtures for all tests: private servers, and one installation on each kind of database."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from sqlalchemy import Engine, make_url
from sqlalchemy.orm import Session, sessionmaker

from evaluator.problems.loading import load_problems
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from storage.database import create_engine_for, migrate, session_factory
from storage.ids import new_id
from storage.problems import sync_problems
from tests.core import is_slow
from tests.services import postgresql_server, redis_server

_ROOT = Path(__file__).parent.parent

_ALONE = (
    "tests/browser/",
    *(
        f"tests/evaluator/{name}.py"
        for name in (
            "judge/device/test_peak_rates",
            "judge/test_evaluated_together",
            "judge/timing/test_timing_rules",
            "judge/timing/test_waiting",
            "protocol/test_control_page",
            "results/test_compiled_baselines",
            "sandbox/test_priority",
            "sandbox/test_sandbox",
            "stages/test_shapes",
            "test_corpus",
            "test_engine",
            "test_selftest",
        )
    ),
    "tests/redteam/test_timed_mutations.py",
)
"""Two cores are what an evaluation takes, or a browser with the service that it looks at: beside another one, figures
and time limits are those of a busy machine. All other files compile, read or compute, or end with a verdict about
values, and are not asked how long that took."""
_LONGEST = (
    "tests/serve/",
    "tests/worker/test_process.py",
    "tests/evaluator/builder/recipes/test_recipes.py",
    "tests/evaluator/problems/test_importing.py",
    "tests/evaluator/problems/test_vetting.py",
    "tests/evaluator/test_corpus_honest.py",
    "tests/evaluator/test_corpus_wrong.py",
    "tests/redteam/test_mutations.py",
)
"""Files of minutes."""

# Tests look at once at what was just written.
os.environ["KERNELJUDGE_ANSWER_AGE_S"] = "0"
# Tests beside them make a machine noisy for as long as they take: a longer pause would not help.
os.environ["KERNELJUDGE_MEASURE_AGAIN_S"] = "1"
# Where this machine keeps what `kerneljudge prepare` made says nothing about how anything behaves, and making it again
# takes minutes.
_KEPT = ("KERNELJUDGE_ANSWER_AGE_S", "KERNELJUDGE_MEASURE_AGAIN_S", "KERNELJUDGE_PREPARED_DIR")

# How fast a machine is, is not what is tested.
hypothesis_settings.register_profile("kerneljudge", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("kerneljudge")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what the core leaves out. What must be alone comes last: where tests run side by side, the others are over
    by then."""
    for item in items:
        if is_slow(item.nodeid):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: (_is_alone(item.nodeid), not item.nodeid.startswith(_LONGEST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives each process file after file, and all that must be alone to one."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "alone" if _is_alone(nodeid) else nodeid.partition("::")[0]

    return Scheduling(config, log)


def _is_alone(nodeid: str) -> bool:
    return nodeid.startswith(_ALONE)


def pytest_collection_finish() -> None:
    """Of half a million objects that the collected tests consist of, none is garbage: looking took a tenth of a run."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """A private PostgreSQL server, for as long as the tests run."""
    with postgresql_server() as url:
        yield url


@pytest.fixture(scope="session")
def running_redis_url() -> Iterator[str]:
    """A private Redis server, for as long as the tests run."""
    with redis_server() as url:
        yield url


@pytest.fixture
def redis_url(running_redis_url: str) -> str:
    """A private Redis server with nothing in it: a worker that was ended leaves messages behind."""
    with redis.Redis.from_url(running_redis_url) as client:
        client.flushall()
    return running_redis_url


@pytest.fixture(scope="session")
def new_postgresql_database(postgresql_url: str) -> Callable[..., str]:
    """Makes an empty database, or a copy of the one with this name, and returns its URL."""

    def create(template: str = "template1") -> str:
        name = new_id("test")
        url = make_url(postgresql_url)
        conninfo = f"host={url.host} port={url.port} user={url.username} dbname=postgres"
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        return f"{postgresql_url}/{name}"

    return create


@pytest.fixture(scope="session")
def postgresql_with_schema(
    new_postgresql_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The name of a database to copy, which has the schema: migrating each test's own would take half of its time."""
    url = new_postgresql_database()
    migrate(Settings(data_dir=tmp_path_factory.mktemp("postgresql"), database_url=url))
    return str(make_url(url).database)


@pytest.fixture(scope="session")
def give_schema(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Settings], None]:
    """Gives an installation on SQLite a database with the schema, if it has none; none of its processes runs yet."""
    first = Settings(data_dir=tmp_path_factory.mktemp("sqlite"))
    migrate(first)

    def give(settings: Settings) -> None:
        path = Path(str(make_url(settings.database_url).database))
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(make_url(first.database_url).database), path)

    return give


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The kind of database: whoever asks for it runs once on each."""
    return str(request.param)


@pytest.fixture
def empty_settings(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Settings:
    """Settings of an installation whose database has no schema yet; once for each kind of database."""
    if database == "sqlite":
        return _settings(tmp_path)
    return _settings(tmp_path, database_url=request.getfixturevalue("new_postgresql_database")())


@pytest.fixture
def settings(
    request: pytest.FixtureRequest, database: str, tmp_path: Path, give_schema: Callable[[Settings], None]
) -> Settings:
    """Settings of an installation with its schema, once for each kind of database."""
    if database == "sqlite":
        settings = _settings(tmp_path)
        give_schema(settings)
        return settings
    template = request.getfixturevalue("postgresql_with_schema")
    return _settings(tmp_path, database_url=request.getfixturevalue("new_postgresql_database")(template))


def _settings(folder: Path, **changes: str) -> Settings:
    return Settings(data_dir=folder / "data", problems_dir=_ROOT / "reference_models", **changes)


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    """The engine of ``settings``."""
    engine = create_engine_for(settings)
    yield engine
    engine.dispose()


@pytest.fixture
def sessions(engine: Engine, problems: dict[str, Problem]) -> sessionmaker[Session]:
    """Sessions on a database that knows the problems of the repository."""
    sessions = session_factory(engine)
    with sessions.begin() as session:
        sync_problems(session, problems)
    return sessions


@pytest.fixture(scope="session")
def problems() -> dict[str, Problem]:
    """The problems of the repository."""
    return load_problems(_ROOT / "reference_models")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this shell has configured, tests start from the defaults (but for those above)."""
    for name in [name for name in os.environ if name.startswith("KERNELJUDGE_") and name not in _KEPT]:
        monkeypatch.delenv(name)
