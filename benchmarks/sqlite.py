"""App on a SQLite file, compared with bare sqlite3 (``synchronous=FULL``) and Huey on the same disk."""

from __future__ import annotations

import asyncio
import gc
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measures import add_rates, drain_app, growth, noop
from benchmarks.memory import p99
from benchmarks.report import Figure
from onthedot import App


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="onthedot-bench-") as name:
        yield Path(name)


def sqlite_drain(scale: float) -> list[Figure]:
    """No-op async tasks per second: added first, then run by one worker with 100 slots."""
    count = int(20_000 * scale)
    with folder() as at:
        ours = asyncio.run(drain_app(f"sqlite:///{at}/app.db", count))
        bare = asyncio.run(_drain_bare(at, count))
        peer = _drain_huey(at, max(100, count // 20))
    return [
        Figure(ours, peer, "tasks/s", "Huey", 12, least=True),
        Figure(ours, bare, "tasks/s", "a bare loop: claim 100, run, settle 100", 0.3, least=True),
    ]


async def _drain_bare(at: Path, count: int) -> float:
    """A careful hand-written loop: one table, an index, two statements and a commit per hundred tasks."""
    db = _open(at / "bare.db")
    db.execute("CREATE TABLE task (id INTEGER PRIMARY KEY, body BLOB, state INTEGER, result BLOB)")
    db.execute("CREATE INDEX waiting ON task (id) WHERE state = 0")
    db.execute("BEGIN IMMEDIATE")
    db.executemany("INSERT INTO task (body, state) VALUES (?, 0)", [(b"{}",)] * count)
    db.execute("COMMIT")
    gc.collect()
    began = time.perf_counter()
    while True:
        db.execute("BEGIN IMMEDIATE")
        ids = db.execute("SELECT id FROM task WHERE state = 0 ORDER BY id LIMIT 100").fetchall()
        db.executemany("UPDATE task SET state = 1 WHERE id = ?", ids)
        db.execute("COMMIT")
        if not ids:
            break
        for _ in ids:
            await noop()
        db.execute("BEGIN IMMEDIATE")
        db.executemany("UPDATE task SET state = 2, result = NULL WHERE id = ?", ids)
        db.execute("COMMIT")
    took = time.perf_counter() - began
    db.close()
    return count / took


def _drain_huey(at: Path, count: int) -> float:
    huey, task = _huey(at)
    for _ in range(count):
        task()
    began = time.perf_counter()
    while (each := huey.dequeue()) is not None:
        huey.execute(each)
    rate = count / (time.perf_counter() - began)
    huey.storage.close()
    return rate


def _huey(at: Path) -> tuple[Any, Any]:
    from huey import SqliteHuey

    huey = SqliteHuey("bench", filename=str(at / f"huey-{time.time_ns()}.db"), fsync=True)

    @huey.task()
    def nothing() -> None: ...

    return huey, nothing


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    return db


def sqlite_adds(scale: float) -> list[Figure]:
    """Awaited adds per second: one after the other, and by a hundred concurrent coroutines."""
    count = max(100, int(1000 * scale))
    with folder() as at:
        single, many = asyncio.run(add_rates(f"sqlite:///{at}/adds.db", count))
        bare = asyncio.run(_bare_commits(at, count))
        peer = _huey_adds(at, max(50, count // 4))
    return [
        Figure(many, single, "adds/s", "100 at once beside one by one", 10, least=True),
        Figure(many, peer, "adds/s", "100 at once beside Huey on SQLite", 10, least=True),
        Figure(single, bare, "adds/s", "one by one beside a bare commit in a thread", 0.5, least=True),
    ]


async def _bare_commits(at: Path, count: int) -> float:
    """One row per commit, awaited on the event loop while a thread writes it."""
    db = _open(at / "commits.db")
    loop = asyncio.get_running_loop()
    db.execute("CREATE TABLE task (id INTEGER PRIMARY KEY, body BLOB)")

    def insert() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO task (body) VALUES (?)", (b"{}",))
        db.execute("COMMIT")

    with ThreadPoolExecutor(1) as pool:
        began = time.perf_counter()
        for _ in range(count):
            await loop.run_in_executor(pool, insert)
        rate = count / (time.perf_counter() - began)
    db.close()
    return rate


def _huey_adds(at: Path, count: int) -> float:
    huey, task = _huey(at)
    began = time.perf_counter()
    for _ in range(count):
        task()
    rate = count / (time.perf_counter() - began)
    huey.storage.close()
    return rate


_WORKER = """
import asyncio, sys, time
from onthedot import App
app = App("bench", store=sys.argv[1])
@app.task
async def due(at: float) -> None:
    print((time.monotonic() - at) * 1000, flush=True)
async def main():
    async with app.running():
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


def sqlite_pick_up(scale: float) -> list[Figure]:
    """p99 of the time from an add to the first line of the task in a worker of another process."""
    count = max(50, int(300 * scale))
    with folder() as at:
        url = f"sqlite:///{at}/pick.db"
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        late = asyncio.run(_ask(url, worker, count))
        worker.communicate("")
    return [Figure(p99(late), 1, "ms p99", "a fresh task's pick-up by another process", 10, least=False)]


async def _ask(url: str, worker: subprocess.Popen[str], count: int) -> list[float]:
    app = App("bench", store=url)
    chance = random.Random(3)
    late: list[float] = []
    reader = threading.Thread(target=lambda: late.extend(float(worker.stdout.readline()) for _ in range(count)))  # type: ignore[union-attr]
    reader.start()
    async with app:
        due = app.named("due")
        for _ in range(count):
            await due.enqueue(at=time.monotonic())
            await asyncio.sleep(chance.uniform(0.002, 0.012))
    reader.join(20)
    assert len(late) == count
    return late


def sqlite_lateness(scale: float) -> list[Figure]:
    """p99 of the lateness of delayed tasks, compared with bare timers in the same event loop."""
    count = int(400 * scale) or 100
    script = (
        "import asyncio, sys; from benchmarks.memory import lateness_of as late; "
        "print(*asyncio.run(late(int(sys.argv[1]), sys.argv[2])))"
    )
    with folder() as at:
        command = [sys.executable, "-c", script, str(count), f"sqlite:///{at}/late.db"]
        out = subprocess.run(command, capture_output=True, text=True, check=True)
    ours, bare = map(float, out.stdout.split())
    return [Figure(ours, bare, "ms p99", "a bare asyncio timer", 5, least=False, difference=True)]


def sqlite_idle(scale: float) -> list[Figure]:
    """CPU of an idle worker with scheduled tasks."""
    with folder() as at:
        used = asyncio.run(_idle(at, max(1.0, 4 * scale)))
    return [Figure(used, 1, "% CPU", "an idle worker", 0.5, least=False)]


async def _idle(at: Path, seconds: float) -> float:
    app = App("bench", store=f"sqlite:///{at}/idle.db")
    task = app.task(noop)
    async with app.running():
        await task.options(after=3600).enqueue_many([{}] * 1000)
        await asyncio.sleep(0.2)
        before = time.process_time()
        await asyncio.sleep(seconds)
        return (time.process_time() - before) / seconds * 100


def sqlite_growth(scale: float) -> list[Figure]:
    with folder() as at:
        return growth(f"sqlite:///{at}/few.db", f"sqlite:///{at}/many.db", scale)


MEASURES = [sqlite_drain, sqlite_adds, sqlite_pick_up, sqlite_lateness, sqlite_idle, sqlite_growth]
