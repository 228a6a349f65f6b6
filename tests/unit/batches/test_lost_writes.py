"""A store that has lost its last writes: a batch goes on from what is left."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onthedot import App
from tests.support.waits import SOON, until
from tests.unit.batches.name_tasks import NameTasks


def copy(source: Path, target: Path) -> None:
    """A consistent copy of a database that nobody writes to."""
    target.unlink(missing_ok=True)
    for end in ("-wal", "-shm"):
        Path(f"{target}{end}").unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)


@pytest.mark.parametrize("streamed", [0, 1, 2])
async def test_batch_continues_from_an_older_state_of_its_store(tmp_path: Path, streamed: int) -> None:
    """streamed: parts that were reported when the copy was made, to which the store falls back later."""
    path = tmp_path / "shop.db"
    app = App("shop", store=f"sqlite:///{path}", stop_timeout=0)
    tasks = NameTasks(app)
    tasks.gate = asyncio.Event()
    tasks.gated = set(range(streamed, 3))
    async with app.running():
        batch = await app.batch(tasks.names, count=50, type="character_name")
        await until(lambda: _has(app, batch.id, parts=streamed, state="waiting"))
        before = [part async for part in _take(batch.parts(), streamed)]
    app.shutdown()
    copy(path, tmp_path / "before.db")
    tasks.gate.set()
    async with app.running():
        await batch.all(SOON)
    app.shutdown()
    copy(tmp_path / "before.db", path)
    async with app.running():
        result = await batch.all(SOON)
        parts = [part async for part in batch.parts()]
    app.shutdown()
    assert len(set(result.items)) == 50
    assert parts[:streamed] == before
    assert [part.number for part in parts] == [1, 2, 3]
    assert sorted(part.index for part in parts) == [0, 1, 2]


async def _has(app: App, batch: str, *, parts: int, state: str) -> bool:
    info = await app.get(batch)
    return info.state.value == state and (await app.batch_handle(batch).progress()).done == parts


async def _take(parts, count):  # type: ignore[no-untyped-def]
    if count:
        async for part in parts:
            yield part
            count -= 1
            if not count:
                return
