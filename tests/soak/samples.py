"""Samples that a soak run takes: of its processes, and of its store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from tests.faults.server_stores import PostgresServer, RedisServer, ServerStore, SqliteFile

Sample = Mapping[str, float]
PROCESS = ("memory", "descriptors", "threads")  # per process; memory in MB


def of_process(pid: int) -> dict[str, float]:
    folder = Path(f"/proc/{pid}")
    status = (folder / "status").read_text()
    return {
        "memory": int(status.partition("VmRSS:")[2].split()[0]) / 1024,
        "descriptors": len(list((folder / "fd").iterdir())),
        "threads": int(status.partition("Threads:")[2].split()[0]),
    }


def sampler_of(store: ServerStore) -> Callable[[], dict[str, float]]:
    match store:
        case RedisServer():
            return lambda: _of_redis(store)
        case PostgresServer():
            return lambda: _of_postgres(store)
        case SqliteFile():
            return lambda: _of_file(store.path)
    raise TypeError(store)


def _of_redis(store: RedisServer) -> dict[str, float]:
    """Keys, and the entries in them; the change feed is bounded by itself."""
    import redis

    entries = 0
    sizes = {b"hash": "HLEN", b"zset": "ZCARD", b"set": "SCARD", b"list": "LLEN"}
    with redis.Redis(port=store.port) as client:
        keys = list(client.scan_iter("*", count=1000))
        for key in keys:
            command = sizes.get(client.type(key))
            if command is not None:
                entries += client.execute_command(command, key)
    return {"keys": len(keys), "rows": entries}


def _of_postgres(store: PostgresServer) -> dict[str, float]:
    import psycopg

    with psycopg.connect(store.admin_url) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'onthedot'::regnamespace"
        ).fetchall()
        rows = 0
        for (table,) in tables:
            if table != "change":  # bounded by itself
                found = connection.execute(f"SELECT count(*) FROM onthedot.{table}").fetchone()
                assert found is not None
                rows += found[0]
        wal = connection.execute("SELECT coalesce(sum(size), 0) FROM pg_ls_waldir()").fetchone()
        assert wal is not None
    return {"rows": rows, "wal": float(wal[0]) / 1e6}


def _of_file(path: Path) -> dict[str, float]:
    with closing(sqlite3.connect(path, timeout=30)) as db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'onthedot%'").fetchall()
        rows = sum(
            db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for (table,) in tables
            if table != "onthedot_change"
        )
    wal = path.with_name(f"{path.name}-wal")
    return {"rows": rows, "wal": wal.stat().st_size / 1e6 if wal.exists() else 0.0}


def growth(samples: Sequence[tuple[float, float]]) -> float:
    """By how much the fitted line rises from the middle of the run to its end. (seconds, value) each."""
    half = samples[len(samples) // 2 :]
    if len(half) < 3:
        return 0.0
    mean_x = sum(x for x, _ in half) / len(half)
    mean_y = sum(y for _, y in half) / len(half)
    spread = sum((x - mean_x) ** 2 for x, _ in half)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in half) / spread
    return slope * (half[-1][0] - half[0][0])
