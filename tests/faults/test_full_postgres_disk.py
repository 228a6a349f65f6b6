"""The disk of Postgres is full: adds are refused with a clear error, and work continues when there is space again."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from onthedot import StoreError, StoreFull, StoreUnavailable
from tests.faults import task_app
from tests.faults.run_log import RunLog
from tests.faults.server_stores import PostgresServer
from tests.faults.test_killed_workers import counts, sessions
from tests.faults.worker_processes import wait_for, worker_processes
from tests.support.fault_report import read_records, report_faults
from tests.support.services.postgres_server import SETTINGS, Server
from tests.support.services.programs import Missing, give_up
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.waits import SOON

pytestmark = pytest.mark.fault

LEASE = 30  # seconds
DISK_FULL = "53100"
MEGABYTES = 200  # of the disk; a new database and its write-ahead log need about 60
ROOM = 2_000_000  # bytes until the disk is full


@contextmanager
def postgres_in(folder: Path) -> Iterator[PostgresServer]:
    server = Server(folder, {**SETTINGS, "synchronous_commit": "on"})  # promise 1 depends on it
    try:
        server.make()
        server.start()
    except Missing as missing:
        give_up(missing)
    try:
        yield PostgresServer(server)
    finally:
        server.stop()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, MEGABYTES) as disk:
        yield disk


class Producer:
    """Adds tasks with long arguments and results, and keeps what was acknowledged and what was certainly not stored."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.refused: set[str] = set()

    def add(self) -> StoreError | None:
        """Returns the error, if it was not acknowledged."""
        try:
            self.acknowledged.add(task_app.copied.delay(os.urandom(10_000).hex()).uuid)
        except StoreError as error:
            if error.stored is False:
                self.refused |= set(error.uuids)
            return error
        return None

    def add_until_refused(self) -> StoreError:
        for _ in range(5_000):
            if (error := self.add()) is not None:
                return error
        raise AssertionError("the disk is not full")

    def add_until_acknowledged(self) -> None:
        wait_for(lambda: self.add() is None, SOON)

    def check(self, run: str, run_log: RunLog) -> None:
        """All acknowledged tasks have ended, and none that was refused is there."""
        wait_for(lambda: not counts().keys() - {"succeeded"}, SOON)
        report = report_faults(run, task_app.app, self.acknowledged, run_log.entries(), [])
        report.check(most_extra_runs=task_app.SLOTS)
        assert set(read_records(task_app.app, self.refused).values()) <= {None}


def test_full_disk_of_the_tables_refuses_adds_until_there_is_space(
    disk: SmallDisk, tmp_path: Path, run_log: RunLog, run_log_path: Path
) -> None:
    """The write-ahead log is on another disk, so the server goes on."""
    folder = tmp_path / "server"
    folder.mkdir()
    tables = disk.folder / "tables"
    tables.mkdir()
    with postgres_in(folder) as server:
        server.execute(
            f"CREATE TABLESPACE small LOCATION '{tables}'", "GRANT CREATE ON TABLESPACE small TO worker",
            "ALTER DATABASE postgres SET default_tablespace = small",
        )  # fmt: skip
        url = server.url(LEASE)
        producer = Producer()
        with task_app.app.override(store=url), worker_processes(url, run_log_path, 1) as workers:
            wait_for(lambda: sessions() == 1, SOON)
            producer.add_until_acknowledged()
            disk.fill(leave=ROOM)
            error = producer.add_until_refused()
            assert isinstance(error, StoreFull)
            assert re.search(
                r"(?s)No space left on device.*; the server has no space left: nothing was written", str(error)
            )
            assert error.stored is False
            wait_for(lambda: "the server has no space left" in workers.log.read_text(), SOON, producer.add)
            disk.free()
            producer.add_until_acknowledged()
            producer.check("postgres, full disk of the tables", run_log)
            assert workers.workers[0].poll() is None, "the worker has not ended"


def test_postgres_that_panics_since_its_log_cannot_grow_loses_nothing_that_was_acknowledged(
    disk: SmallDisk, run_log: RunLog, run_log_path: Path
) -> None:
    """It recovers, and panics again, or cannot recover; in the end it is started again on a disk with space."""
    with postgres_in(disk.folder) as server:
        url = server.url(LEASE)
        producer = Producer()
        with task_app.app.override(store=url), worker_processes(url, run_log_path, 1) as workers:
            wait_for(lambda: sessions() == 1, SOON)
            producer.add_until_acknowledged()
            disk.fill(leave=ROOM)
            wait_for(lambda: has_panicked(server), SOON, producer.add)
            server.die(signal.SIGKILL)
            assert isinstance(producer.add_until_refused(), StoreUnavailable)
            disk.free()
            server.start()
            producer.add_until_acknowledged()
            producer.check("postgres, no space for its log", run_log)
            assert workers.workers[0].poll() is None, "the worker has not ended"


def has_panicked(server: PostgresServer) -> bool:
    """Demands space for the next file of the log. A panic ends all connections."""
    try:
        server.execute("SELECT pg_switch_wal()")
    except psycopg.OperationalError as error:
        return error.sqlstate != DISK_FULL
    return False
