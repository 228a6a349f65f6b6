"""A real Prefect server for the tests: one per run, started for the first test that uses it.

If its environment cannot be made, its tests are skipped with the reason, or fail with ``--require-services``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.services.prefect_environment import environment
from tests.support.services.prefect_server import PrefectServer
from tests.support.services.programs import Missing, give_up


def find() -> Iterator[PrefectServer]:
    with tempfile.TemporaryDirectory(prefix="prefect-", ignore_cleanup_errors=True) as folder:
        try:
            server = PrefectServer(environment(), Path(folder))
            server.open()
        except Missing as why:
            give_up(why)
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def prefect() -> Iterator[PrefectServer]:
    yield from find()
