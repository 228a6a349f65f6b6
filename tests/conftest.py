"""Fixtures and hooks for every test. `async def` tests run without an asyncio plugin."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from onthedot import App, TaskConsumerRegistry, get_scheduler
from onthedot.clock.manual import ManualClock
from tests.support.app_stores import app_store as _app_store
from tests.support.leak_check import descendants
from tests.support.services import kafka as _kafka, leftovers, postgres as _postgres, prefect as _prefect, programs
from tests.support.services.postgres import Service
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from tests.support.services.pgbouncer import Pooled

settings.register_profile("calm", deadline=None)  # a slow run on a busy machine is not a failure
settings.load_profile("calm")

collect_ignore_glob = [
    "typing/use_*.py",
    "support/programs/*.py",
    "support/django_site/*/*.py",
    "support/django_site/site_settings.py",
]  # programs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-services",
        action="store_true",
        help="a server that a test needs and cannot start is a failure, not a skip (CI=true ./dev test sets this)",
    )


def pytest_configure(config: pytest.Config) -> None:
    programs.required = bool(config.getoption("--require-services"))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Passing tests leave nothing behind. (The Postgres fixture checks its server before it stops it.)"""
    if exitstatus == 0 and (left := [*leftovers.of_valkey(), *leftovers.of_processes()]):
        print(f"\n{leftovers.message(left)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background by a shell: programs would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

ONCE = (
    "faults",
    "model",
    "page",
    "typing",
    "unit/cli",
    "unit/operations",
    "unit/schedules",
    "unit/stores",
    "unit/web",
    "unit/test_private_usage.py",
    "unit/test_sizes.py",
    "unit/test_suite_runs.py",
    "unit/test_vocabulary.py",
)
"""Slow tests whose result does not depend on the Python version."""
ON_EVERY_PYTHON = (
    "unit/operations/test_explain.py",
    "unit/operations/test_limits.py",
    "unit/operations/test_start_estimates.py",
    "unit/schedules/test_cron.py",
    "unit/schedules/test_rules.py",
)
"""Exceptions from ONCE."""
SEARCHES = ("model", "unit/schedules/cron")
"""Tests of ONCE that search for counterexamples: they use the processor while other tests wait."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        path = item.path.relative_to(here)
        if any(map(path.is_relative_to, ONCE)) and not any(map(path.is_relative_to, ON_EVERY_PYTHON)):
            item.add_marker(pytest.mark.once)
        if any(map(path.is_relative_to, SEARCHES)):
            item.add_marker(pytest.mark.search)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs `async def` tests, each in a fresh event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    # Debug mode times every callback and keeps every traceback, which would distort timing tests.
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}), debug=False)
    return True


postgres = _postgres.postgres  # a fixture that starts a server for the first test that uses it
prefect = _prefect.prefect  # the same for a Prefect server
kafka_service = _kafka.kafka_service  # the same for Kafka
kafka = _kafka.kafka  # its topics last for one test
app_store = _app_store  # a fixture: the four stores, for a test of an app


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs under test keep nothing in the home folder of the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def pooled(postgres: Service) -> Iterator[Pooled]:
    """The same server through PgBouncer, as a role with minimal rights."""
    from tests.support.services.pgbouncer import pooler

    with pooler(postgres) as pooled:
        yield pooled


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock) -> Iterator[App]:
    """An app with its own memory store and the clock of the test."""
    app = App("shop", store="memory://", stop_timeout=0)
    with app.override(clock=clock):
        yield app


@pytest.fixture
def ran() -> list[Any]:
    """Filled by the tasks of a test."""
    return []


@pytest.fixture
def send(app: App, ran: list[Any]) -> Any:
    @app.task
    async def send(to: str, body: str = "hello") -> str:
        ran.append(to)
        return f"{body}, {to}"

    return send


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before)


@pytest.fixture
def no_process_stays() -> Iterator[None]:
    yield
    wait_until(lambda: not [name for name in descendants(os.getpid()).values() if "onthedot" in name])


@pytest.fixture
def own_globals(no_thread_left: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A new global registry and a new shared scheduler for each test, which leaves no thread behind."""
    monkeypatch.delenv("ONTHEDOT_STORE", raising=False)
    monkeypatch.setattr(TaskConsumerRegistry, "sources", {})
    monkeypatch.setattr(TaskConsumerRegistry, "watchers", [])
    monkeypatch.setattr("onthedot.api.scheduler.shared", None)
    yield
    get_scheduler().runtime.portal.close()


@pytest.fixture
def no_hidden_trouble(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails if the worker logged an error that a second try has hidden."""
    yield
    assert [line for record in caplog.get_records("call") if "trying again" in (line := record.getMessage())] == []
