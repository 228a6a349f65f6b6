"""The cost of reading events: it depends on what is returned, not on what else is stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from onthedot.stores.contract import BUCKETS, MAX_READ_BYTES, Arrival, UnreadCount
from onthedot.stores.sqlite import event_tables
from onthedot.stores.sqlite.event_reads import SqliteEventReads
from onthedot.stores.sqlite.event_tables import SqliteEventTables
from onthedot.stores.sqlite.schema import schema_text
from tests.contract.event_steps import event, key_in

MANY = 20_000
ALL = range(BUCKETS)


@pytest.fixture
def tables() -> Iterator[SqliteEventTables]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.executescript(schema_text())
        tables = SqliteEventTables(db, 1)
        tables.now = 1000.0
        yield tables


def steps(tables: SqliteEventTables, work: Callable[[], object]) -> int:
    """Hundreds of instructions of SQLite's virtual machine."""
    count = 0

    def counted() -> int:
        nonlocal count
        count += 1
        return 0

    db = tables.db
    db.set_progress_handler(counted, 100)
    work()
    db.set_progress_handler(None, 100)
    return count


def ids(tables: SqliteEventTables, **options: object) -> list[str]:
    wanted = {"buckets": ALL, "in_flight": (), "skip_topics": (), "limit": 500} | options
    return [stored.event.id for stored in tables.pending(**wanted).events]  # type: ignore[arg-type]


def test_events_of_a_skipped_topic_are_not_read(tables: SqliteEventTables) -> None:
    tables.insert([event(str(number), "down.topic.events") for number in range(MANY)])
    tables.insert([event(event_id="1")])
    assert ids(tables, skip_topics=("down.topic.events",)) == ["1"]
    assert steps(tables, lambda: ids(tables, skip_topics=("down.topic.events",))) < 100


def test_events_of_buckets_that_others_own_are_not_read(tables: SqliteEventTables) -> None:
    tables.insert([event(key_in(3)) for _ in range(MANY)])
    tables.insert([event(key_in(4), event_id="1")])
    assert ids(tables, buckets=(4,)) == ["1"]
    assert steps(tables, lambda: ids(tables, buckets=(4,))) < 100


def test_page_of_a_long_queue_costs_as_much_as_one_of_a_short_queue(tables: SqliteEventTables) -> None:
    tables.insert([event(f"k{number}", event_id=f"{number:05}") for number in range(500)])
    short = steps(tables, lambda: ids(tables, limit=100))
    tables.insert([event(f"k{number}", event_id=f"{number:05}") for number in range(500, MANY)])
    assert steps(tables, lambda: ids(tables, limit=100)) <= short * 1.2
    assert ids(tables, limit=100) == [f"{number:05}" for number in range(100)]
    assert len(ids(tables, limit=MANY)) == MANY


def test_one_long_queue_among_short_ones_is_read_in_order(tables: SqliteEventTables) -> None:
    keys = [key_in(3) if number % 7 else key_in(number % BUCKETS) for number in range(1000)]
    tables.insert([event(key, event_id=f"{number:04}") for number, key in enumerate(keys)])
    assert ids(tables, limit=900) == [f"{number:04}" for number in range(900)]


def test_events_behind_a_failed_one_are_read_once(tables: SqliteEventTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several calls, if there are many."""
    monkeypatch.setattr("onthedot.stores.sqlite.event_tables.MAX_SET_ASIDE", 2 * MANY // 3)
    tables.insert([event("a", event_id=f"{number:05}") for number in range(MANY)])
    tables.mark_failed({1: "no"})
    first = tables.pending(ALL, (), (), 500)
    tables.insert([event("b", event_id="b")])
    second = tables.pending(ALL, (), (), 500)
    assert (first.events, first.more, second.more) == ([], True, False)
    assert [stored.event.id for stored in second.events] == ["b"]
    assert steps(tables, lambda: ids(tables)) < 20
    tables.amend(["00000"], "retry", "")
    assert ids(tables, limit=MANY) == [f"{number:05}" for number in range(MANY)]


def test_mark_reads_only_what_was_sent(tables: SqliteEventTables) -> None:
    tables.insert([event(str(number)) for number in range(MANY)])
    assert steps(tables, lambda: tables.mark_sent([5, 3], to_log=True)) < 20
    assert len(ids(tables, limit=MANY)) == MANY - 2


def test_reader_gets_over_events_of_other_topics_in_steps(
    tables: SqliteEventTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_tables, "MAX_SCAN", 100)
    key = key_in(3)
    tables.insert([event(key, "other.topic.events") for _ in range(250)])
    tables.insert([event(key, event_id="1")])
    tables.mark_sent(range(1, 252), to_log=True)
    topic = event().topic
    found, position = tables.read_log(3, [topic], 0, 10, MAX_READ_BYTES)
    assert (found, position) == ([], 100)
    found, position = tables.read_log(3, [topic], position, 10, MAX_READ_BYTES)
    assert (found, position) == ([], 200)
    found, position = tables.read_log(3, [topic], position, 10, MAX_READ_BYTES)
    assert ([stored.event.id for stored in found], position) == (["1"], 251)
    assert tables.read_log(3, [topic], position, 10, MAX_READ_BYTES) == ([], 251)


def test_reader_passes_over_a_purged_part_in_one_step(
    tables: SqliteEventTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_tables, "MAX_SCAN", 100)
    tables.insert([event(key_in(3), event_id=str(number)) for number in range(1, 301)])
    tables.mark_sent(range(1, 301), to_log=True)
    tables.db.execute("DELETE FROM onthedot_event_outbox WHERE position < 300")
    found, position = tables.read_log(3, [event().topic], 0, 10, MAX_READ_BYTES)
    assert ([stored.event.id for stored in found], position) == (["300"], 300)


def test_unread_events_are_counted_without_those_that_are_read(tables: SqliteEventTables) -> None:
    tables.insert([event(key_in(3)) for _ in range(MANY)])
    tables.mark_sent(range(1, MANY + 1), to_log=True)
    tables.commit("g", 3, MANY - 2)
    reads = SqliteEventReads(tables.db, 1)
    assert reads.unread("g", [event().topic]) == [UnreadCount(event().topic, 3, 2)]
    assert reads.unread("new", [event().topic]) == [UnreadCount(event().topic, 3, MANY)]
    assert steps(tables, lambda: reads.unread("g", [event().topic])) < 20


def test_arrivals_are_purged_by_one_row_per_call(tables: SqliteEventTables) -> None:
    tables.insert_arrivals([Arrival("c", str(number), "T", b"{}") for number in range(50)])
    tables.insert_arrivals([Arrival("c", "1", "T", b"{}")])
    rows = tables.db.execute("SELECT what, json_array_length(seqs) FROM onthedot_retention").fetchall()
    assert rows == [("arrival", 50)], "a copy is not kept, and needs no row"
