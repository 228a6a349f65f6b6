"""A file of an older version is migrated when it is opened, with its tasks."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from onthedot.cli import main
from onthedot.errors import StoreRefused
from onthedot.stores.contract import ClaimRequest, NewEvent, NewTask, RelayRequest, SlotPool
from onthedot.stores.sqlite import SqliteStore
from onthedot.stores.sqlite.schema import VERSION, check, install
from tests.unit.stores.sqlite.peer import FOREVER

OLD = Path(__file__).with_name("schema_3.sql")  # as the last commit of that version had it
TASK = """
INSERT INTO onthedot_app VALUES (1, 'onthedot');
INSERT INTO onthedot_source VALUES (1, 1, 'a');
INSERT INTO onthedot_task (seq, app, uuid, source, policy, due, added, state, body)
VALUES (1, 1, 'old', 1, '{}', 1000, 1000, 'ready', x'7b7d');
INSERT INTO onthedot_ready VALUES (1, 0, 1000, 1);
INSERT INTO onthedot_tally VALUES (1, 'ready', 1);
INSERT INTO onthedot_task (seq, app, uuid, source, policy, due, added, state, body)
VALUES (2, 1, 'failed', 1, '{}', 1000, 1000, 'ready', x'7b7d'), (3, 1, 'done', 1, '{}', 1000, 1000, 'ready', x'7b7d');
INSERT INTO onthedot_history (seq, due, state, reason, retries, crashes, earlier, cancel, settled, ended, keep_until)
VALUES (2, 1000, 'failed', 'due', 0, 0, 0, 0, 1, 2000, 9000000000000),
    (3, 1000, 'succeeded', 'due', 0, 0, 0, 0, 1, 2000, 9000000000000);
INSERT INTO onthedot_retention (app, what, until, ended, seqs) VALUES (1, 'task', 9000000000000, 2000, '[2,3]');
INSERT INTO onthedot_tally VALUES (1, 'failed', 1), (1, 'succeeded', 1);
UPDATE onthedot_sequence SET seq = 3, moves = 1;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of version 3 with a ready task and two that have ended."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.executescript(OLD.read_text("utf-8"))
        db.executescript(TASK)
    return tmp_path / "shop.db"


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        found: int
        (found,) = db.execute("SELECT version FROM onthedot_sequence").fetchone()
        return found


def layout(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """The columns of tables and indexes, by name."""
    with closing(sqlite3.connect(path)) as db:
        names = db.execute("SELECT type, name FROM sqlite_master WHERE name LIKE 'onthedot%'").fetchall()
        return {
            f"{kind} {name}": db.execute(f"PRAGMA {kind}_xinfo('{name}')").fetchall() for kind, name in sorted(names)
        }


async def use(store: SqliteStore) -> None:
    """The old task runs, ended ones are listed and purged, and an event is relayed."""
    await store.open()
    for state, uuid in (("failed", "failed"), ("succeeded", "done")):
        assert [row.uuid for row in (await store.find({"state": state, "source": "a"}, None, 9)).rows] == [uuid]
    assert await store.purge(9, 0) == 2
    await store.heartbeat("w", b"", FOREVER)
    turn = await store.turn("w", [], ClaimRequest(1, [SlotPool(2, {"a": 2})]))
    assert turn.claim is not None
    assert [record.uuid for record in turn.claim.tasks] == ["old"]
    assert [added.fresh for added in await store.add([NewTask("new", "a", b"")])] == [True]
    assert await store.publish([NewEvent("1", "t", "k", 3)]) == [True]
    assert [each.event.id for each in (await store.relay("w", [], {}, RelayRequest())).events] == ["1"]
    await store.close()


async def test_old_file_is_migrated_with_its_tasks(path: Path, tmp_path: Path) -> None:
    await use(SqliteStore(path))
    assert version(path) == VERSION
    assert check(str(path))[0]
    install(str(tmp_path / "fresh.db"))
    assert layout(path) == layout(tmp_path / "fresh.db")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_old_file_is_migrated_in_the_transaction_of_a_publisher(path: Path) -> None:
    store = SqliteStore(path)
    with closing(sqlite3.connect(path)) as db:
        for end in (db.rollback, db.commit):
            db.execute("BEGIN IMMEDIATE")
            assert store.publish_in(db, [NewEvent("0", "t", "k", 3)]) == [True]
            end()
            assert (version(path) == VERSION) == (end == db.commit)
    await store.open()
    (found,) = await store.find_events({}, 0, 9)
    assert found.event.id == "0"
    await store.close()


def test_check_of_an_old_file_says_what_to_do(path: Path) -> None:
    result = CliRunner().invoke(main, ["schema", "check", "--store", f"sqlite:///{path}"])
    assert result.exit_code == 1
    assert f"schema version 3, this onthedot needs {VERSION}: run `onthedot schema install`" in result.output
    assert version(path) == 3, "a check changes nothing"
    assert CliRunner().invoke(main, ["schema", "install", "--store", f"sqlite:///{path}"]).exit_code == 0
    assert version(path) == VERSION


async def test_old_file_is_left_alone_without_auto_schema(path: Path) -> None:
    with pytest.raises(StoreRefused, match="onthedot schema install"):
        await SqliteStore(path, auto_schema=False).open()
    assert version(path) == 3
    install(str(path))
    await use(SqliteStore(path, auto_schema=False))
