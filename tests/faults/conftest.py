from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import task_app
from tests.faults.run_log import RunLog
from tests.faults.server_stores import PROCESS_STORES, ServerStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """A new file, which the functions of the app add to."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with task_app.app.override(store=url):
        yield url


@pytest.fixture
def server_store(request: pytest.FixtureRequest) -> Iterator[ServerStore]:
    """A store that several processes share; the parameter names it."""
    with PROCESS_STORES[request.param]() as server_store:
        yield server_store


@pytest.fixture
def run_log(tmp_path: Path) -> Iterator[RunLog]:
    run_log = RunLog(tmp_path / "run_log")
    yield run_log
    run_log.close()


@pytest.fixture
def run_log_path(tmp_path: Path) -> Path:
    return tmp_path / "run_log"
