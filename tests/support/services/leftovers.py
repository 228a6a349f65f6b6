"""Keys, rows, connections and processes that tests have left behind; checked once, at the end of the run."""

from __future__ import annotations

import os
import time
from typing import Any

from tests.support.leak_check import descendants
from tests.support.services import server_guard, valkey
from tests.support.services.postgres import TABLES, Service

_OURS = (  # end with the run
    server_guard.__file__,
    "tests.support.process_guard",
    "multiprocessing.forkserver",
    "multiprocessing.resource_tracker",
)
_GRACE = 5.0  # seconds for processes that are about to end


def of_valkey() -> list[str]:
    """Keys and connections. The server belongs to the tests, so all of them are theirs."""
    import redis

    found: list[str] = []
    for shared in valkey.running():
        with redis.Redis.from_url(shared.url) as client:
            found += [f"key {key!r}" for key in client.scan_iter("*", count=1000)]
        found += [f"connection {address}" for address in valkey.connections(shared.url)]
    return found


def of_postgres(service: Service) -> list[str]:
    """Connections and rows; on the tests' own server also databases, roles and tables."""
    found = [f"connection {one}" for one in service.left()]
    if service.has_schema():
        found += [f"rows of app {name} in {table}" for table, name in service.ask(_ROWS, _app_pattern(service))]
    if service.server is not None:
        found += [f"{what} {name}" for what, name in service.ask(_CREATED)]
    return found


def _app_pattern(service: Service) -> str:
    return "%" if service.server is not None else f"app{os.getpid()}-%"


_ROWS = " UNION ALL ".join(
    f"SELECT DISTINCT '{table}', a.name FROM onthedot.{table} AS t JOIN one AS a ON a.id = t.app" for table in TABLES
)
_ROWS = f"WITH one AS (SELECT * FROM onthedot.app WHERE name LIKE %s) {_ROWS} UNION ALL SELECT 'app', name FROM one"
_CREATED = """SELECT 'database', datname FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres'
UNION ALL SELECT 'role', rolname FROM pg_roles WHERE rolname <> 'postgres' AND rolname NOT LIKE 'pg!_%%' ESCAPE '!'
UNION ALL SELECT 'table', relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'prepared transaction', gid FROM pg_prepared_xacts"""


def of_processes() -> list[str]:
    deadline = time.monotonic() + _GRACE
    while left := _processes():
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def _processes() -> list[str]:
    """Descendants, without the servers that end with the run and their descendants."""
    below = descendants(os.getpid())
    kept = {pid for pid, name in below.items() if any(part in name for part in _OURS)}
    for pid in list(kept):
        kept |= descendants(pid).keys()
    return [f"process {pid}: {name}" for pid, name in below.items() if pid not in kept]


def message(left: list[Any]) -> str:
    return f"the tests have left behind: {'; '.join(map(str, left[:10]))}{' …' if len(left) > 10 else ''}"
