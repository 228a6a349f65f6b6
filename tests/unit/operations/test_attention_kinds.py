"""Every kind of attention item: at its limit, and gone with its cause."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, get_args

import msgspec
import pytest

from onthedot import App
from onthedot.clock.epoch import from_ms
from onthedot.clock.manual import ManualClock
from onthedot.codec.task_failure import TaskFailure
from onthedot.errors import StoreUnavailable
from onthedot.model.source_figures import FLEET, Depth, FigureRecord, SourceFigures, encode_record
from onthedot.operations import Operations
from onthedot.operations.attention import AttentionItem, AttentionKind
from onthedot.operations.failures import SLICE
from onthedot.schedules.stored_rule import StoredRule, encode_rule
from onthedot.stores.capabilities import ServerInfo
from onthedot.stores.contract import NewEvent, RelayRequest, Schedule, SeriesEntry, State, Store
from onthedot.stores.memory import MemoryStore
from tests.contract.steps import LEASE, Worker, add, limit, task, tasks
from tests.support.app_stores import AppStore
from tests.support.waits import until
from tests.unit.events.relay_steps import TOPIC, event

MINUTE = 60_000
RULE = encode_rule(StoredRule("a", "{}", {"type": "interval", "interval": 60.0}))


class Troubled(MemoryStore):
    """A store with a server whose clock, memory and answers a test decides."""

    clock: ManualClock
    is_away = False
    ahead = 0
    memory = 0

    async def server(self) -> ServerInfo:
        return ServerInfo(self.clock.now() + self.ahead, "test 1", self.memory, 100)

    async def tally(self) -> Mapping[tuple[str, State], int]:
        if self.is_away:
            raise StoreUnavailable("nobody answers")
        return await super().tally()


class Shop:
    """A store with a live worker that knows the source "a"."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clock.advance(60 * MINUTE - self.clock.now() % (60 * MINUTE))
        self.store = Troubled(self.clock)
        self.store.clock = self.clock
        self.operations = Operations(self.store, "test", self.clock)
        self.worker = Worker(self.store, "w1")

    async def open(self) -> Shop:
        await open_worker(self.store)
        return self

    async def items(self) -> list[AttentionItem]:
        return await self.operations.attention()

    async def kinds(self) -> list[str]:
        return [item.kind for item in await self.items()]

    async def item(self) -> AttentionItem:
        (found,) = await self.items()
        return found

    async def write(self, ago: int, record: FigureRecord, series: str = "minutes") -> None:
        """ago: minutes"""
        await write(self.store, int(self.clock.now()), ago, record, series)


async def open_worker(store: Store) -> None:
    await store.heartbeat("w1", b'{"sources": ["a"], "concurrency": {"async": 5}, "schedules": ["tick"]}', LEASE)


async def write(store: Store, now: int, ago: int, record: FigureRecord, series: str = "minutes") -> None:
    span = MINUTE if series == "minutes" else 10 * MINUTE
    at = (now - ago * MINUTE) // span * span
    await store.write_series([SeriesEntry(series, at, FLEET, encode_record(record, 10**5))])


def full(running: int = 2, ready: int = 12) -> FigureRecord:
    return FigureRecord({}, {"a": Depth(ready, 0, running)})


async def shop() -> Shop:
    return await Shop().open()


# -- the server and its workers


async def test_store_that_does_not_answer_is_the_only_item() -> None:
    it = await shop()
    it.store.is_away = True
    found = await it.item()
    assert (found.kind, found.severity, found.text) == ("store", "error", "nobody answers")
    it.store.is_away = False
    assert await it.items() == []


async def test_clocks_that_differ_by_more_than_a_second_need_attention() -> None:
    it = await shop()
    it.store.ahead = 1000
    assert await it.items() == []
    it.store.ahead = 2500
    found = await it.item()
    assert (found.kind, found.severity) == ("clock", "error")
    assert found.text.startswith("this machine's clock is 2.5 s behind the store's")


async def test_full_memory_of_the_server_needs_attention() -> None:
    it = await shop()
    it.store.memory = 80
    assert await it.items() == []
    it.store.memory = 81
    found = await it.item()
    assert (found.kind, found.text[:4]) == ("memory", "81 %")


async def test_tasks_of_dead_workers_need_attention() -> None:
    it = await shop()
    await add(it.store, *tasks(11))
    assert len(await it.worker.runs("a", total=10)) == 10
    assert await it.items() == []
    assert len(await it.worker.runs("a")) == 1
    found = await it.item()
    assert (found.kind, found.severity) == ("dead_workers", "error")
    assert found.text.startswith("11 run on 5 slots of 1 workers")


# -- failures


async def fail(it: Shop, number: int, message: str = "no order") -> None:
    error = msgspec.json.encode(TaskFailure("ValueError", message))
    for start in range(0, number, 1000):
        await add(it.store, *tasks(min(1000, number - start)))
        runs = await it.worker.runs("a")
        await it.worker.settle(*[it.worker.failed(uuid, error) for uuid in runs])


async def test_failures_are_counted_in_full_by_the_background_count() -> None:
    it = await shop()
    await fail(it, 2 * SLICE + 7)

    async def is_counted() -> bool:
        found = await it.items()
        return [item.size for item in found if item.kind == "failures"] == [2 * SLICE + 7]

    await until(is_counted)
    found = await it.item()
    assert (found.text, found.source, found.severity) == ("1,007× ValueError: no order", "a", "error")
    await it.operations.failure_counts.close()


async def test_failures_are_not_read_by_the_items_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    it = await shop()
    await fail(it, 50)
    await it.items()
    sizes: list[int] = []
    find = it.store.find

    async def counted(where: Mapping[str, str], after: str | None, limit: int) -> Any:
        page = await find(where, after, limit)
        sizes.append(len(page.rows))
        return page

    monkeypatch.setattr(it.store, "find", counted)
    for _ in range(5):
        assert await it.kinds() == ["failures"]
    assert sum(sizes) < 50  # the newest failed task shows whether the count is right


async def note_release(it: Shop, name: str) -> None:
    await it.store.write_series([SeriesEntry("releases", int(it.clock.now()), "w1", name.encode())])


async def test_failures_name_the_release_after_which_all_of_them_happened() -> None:
    it = await shop()
    await fail(it, 1, "old error")
    it.clock.advance(MINUTE)
    await note_release(it, "r1")
    it.clock.advance(MINUTE)
    await note_release(it, "r2")
    it.clock.advance(MINUTE)
    await fail(it, 2, "new error")
    await fail(it, 1, "old error")
    found = {item.text: item for item in await it.items()}
    assert {text: item.release for text, item in found.items()} == {
        "2× ValueError: new error": "r2",
        "2× ValueError: old error": None,
    }
    old = found["2× ValueError: old error"]
    assert (sum(old.trend), old.trend[-1], len(old.trend)) == (2, 1, 24)
    assert old.last == from_ms(it.clock.now())


async def test_failures_long_after_a_release_do_not_name_it() -> None:
    it = await shop()
    await note_release(it, "r1")
    it.clock.advance(25 * 60 * MINUTE)
    await it.worker.heartbeat()
    await fail(it, 1)
    found = [item.release for item in await it.items() if item.kind == "failures"]
    assert found == [None]


async def test_failures_of_more_than_an_hour_ago_need_no_attention() -> None:
    it = await shop()
    await fail(it, 3)
    it.clock.advance(59 * MINUTE)
    assert await it.kinds() == ["failures"]
    it.clock.advance(2 * MINUTE)
    assert await it.items() == []


@pytest.mark.parametrize(
    ("before", "last", "is_found"),
    [
        ((98, 2), (90, 10), True),  # 2 % and 10 %
        ((98, 2), (91, 9), False),
        ((97, 3), (90, 10), False),
        ((980, 20), (91, 9), False),  # fewer than ten
        ((100, 0), (90, 10), True),  # as if one had failed
        ((19, 0), (0, 100), False),  # too few runs to compare with
        ((0, 0), (0, 100), False),
    ],
)
async def test_failure_share_is_compared_with_the_hour_before(
    before: tuple[int, int], last: tuple[int, int], is_found: bool
) -> None:
    it = await shop()
    for ago, (succeeded, failed) in ((90, before), (30, last)):
        figures = {"a": SourceFigures(0, succeeded, failed), "b": SourceFigures(0, 50)}
        await it.write(ago, FigureRecord(figures), "ten_minutes")
    found = await it.items()
    assert [item.kind for item in found] == ["failure_share"] * is_found


async def test_failure_share_has_its_size_and_its_beginning() -> None:
    it = await shop()
    for ago in range(10, 121, 10):
        failed = 50 if ago <= 20 else 0
        await it.write(ago, FigureRecord({"a": SourceFigures(0, 100 - failed, failed)}), "ten_minutes")
    found = await it.item()
    assert (found.severity, found.size, found.source) == ("warning", 100, "a")
    assert found.text == "16.7 % of a failed in the last hour, and 0.0 % in the hour before"
    assert found.since == from_ms(it.clock.now() - 20 * MINUTE)
    it.clock.advance(90 * MINUTE)
    assert await it.items() == []


# -- limits


async def held_back(it: Shop, pending: int = 12) -> list[str]:
    """Two tasks run, as many as may, and others are held back."""
    await limit(it.store, "a", cap=2)
    await add(it.store, *tasks(2 + pending))
    return await it.worker.runs("a")


async def test_limit_needs_attention_after_a_minute_and_names_its_holders() -> None:
    it = await shop()
    runs = await held_back(it)
    began = from_ms(it.clock.now())
    it.clock.advance(MINUTE)
    assert await it.items() == []
    it.clock.advance(1)
    found = await it.item()
    assert (found.kind, found.severity, found.size, found.since) == ("limit", "warning", 12, began)
    assert found.text == "a is at its limit, 2 of 2, with 12 ready"
    assert {(each.uuid, each.worker, each.started) for each in found.holders} == {(uuid, "w1", began) for uuid in runs}


async def test_limit_with_few_pending_tasks_or_a_pause_needs_no_attention() -> None:
    it = await shop()
    await held_back(it, pending=9)
    it.clock.advance(2 * MINUTE)
    assert await it.items() == []
    await add(it.store, task("a"))
    assert await it.kinds() == ["limit"]
    await it.operations.pause("a")
    assert await it.items() == []


async def test_limit_whose_tasks_are_short_is_known_from_the_samples_of_each_minute() -> None:
    it = await shop()
    await held_back(it)
    assert await it.items() == []
    it.clock.advance(20_000)  # what was read is not used again
    for ago in (2, 3, 4):
        await it.write(ago, full())
    await it.write(5, full(running=1))
    await it.write(6, full())
    found = await it.item()
    first = it.clock.now() // MINUTE * MINUTE - 4 * MINUTE
    assert found.since == from_ms(first + MINUTE + 45_000)  # a sample is taken up to 45 s after its minute


@pytest.mark.parametrize("record", [full(running=1), full(ready=9), FigureRecord({}, {"b": Depth(50, 0, 9)})])
async def test_limit_that_was_not_reached_in_the_last_sample_is_new(record: FigureRecord) -> None:
    it = await shop()
    await held_back(it)
    await it.write(2, record)
    await it.write(3, full())
    assert await it.items() == []


async def test_samples_of_an_earlier_time_do_not_count_for_a_limit() -> None:
    it = await shop()
    await held_back(it)
    await it.write(10, full())
    assert await it.items() == []


# -- schedules


async def test_schedule_that_is_late_orphan_or_invalid_needs_attention() -> None:
    it = await shop()
    now = int(it.clock.now())
    await it.store.put_schedules([
        Schedule("tick", RULE, "digest", now),
        Schedule("data", RULE, "", now + MINUTE),
        Schedule("gone", RULE, "digest", now + MINUTE),
        Schedule("broken", b"{", "", now + MINUTE),
        Schedule("paused", RULE, "", now, paused=True),
    ])  # fmt: skip
    assert {item.kind: item.text for item in await it.items()} == {
        "schedule_invalid": f"schedule broken cannot be read: {(await invalid_reason(it))}",
        "schedule_orphan": "schedule gone does not fire: no worker that runs declares it any more",
    }
    it.clock.advance(MINUTE)
    assert "schedule_late" not in await it.kinds()
    it.clock.advance(1)
    (late,) = [item for item in await it.items() if item.kind == "schedule_late"]
    assert (late.text, late.since, late.source) == ("schedule tick is late", from_ms(now), "a")
    assert late.action == ("show", "GET", "/schedules/tick")


async def invalid_reason(it: Shop) -> str:
    (found,) = [each for each in await it.operations.schedules.list() if each.name == "broken"]
    assert found.reason
    return found.reason


# -- events


async def publish(it: Shop, *events: NewEvent) -> None:
    now = int(it.clock.now())
    await it.store.publish([msgspec.structs.replace(each, occurred_at=now) for each in events])


async def test_refused_events_and_their_keys_need_attention() -> None:
    it = await shop()
    await publish(it, event("k", event_id="1"), event("k", event_id="2"), event("m", event_id="3"))
    await it.store.heartbeat("r", b"{}", LEASE)
    result = await it.store.relay("r", (), {}, RelayRequest())
    seqs = {stored.event.id: stored.seq for stored in result.events}
    assert await it.items() == []
    await it.store.relay("r", [seqs["3"]], {seqs["1"]: "too large"}, None)
    found = await it.item()
    assert (found.kind, found.size, found.action) == ("outbox_failed", 1, ("show", "GET", "/outbox"))
    assert found.text == f"1 event of {TOPIC} failed, 1 key is blocked: too large"


async def test_events_that_are_not_sent_for_a_minute_need_attention() -> None:
    it = await shop()
    await publish(it, event())
    it.clock.advance(MINUTE)
    assert await it.items() == []
    it.clock.advance(1)
    found = await it.item()
    assert (found.kind, found.severity) == ("outbox_late", "error")
    assert found.text == f"no relay is alive to send the events of {TOPIC}"
    await it.operations.outbox.pause(TOPIC, "maintenance")
    assert await it.items() == []


# -- all kinds


def test_every_kind_has_a_test() -> None:
    here = {"store", "clock", "memory", "dead_workers", "failures", "failure_share", "limit", "outbox_failed"}
    here |= {"schedule_invalid", "schedule_orphan", "schedule_late", "outbox_late"}
    assert here | {"no_worker", "paused"} == set(get_args(AttentionKind))  # two are in test_attention


# -- on every store


@asynccontextmanager
async def opened(app_store: AppStore) -> AsyncIterator[tuple[Store, Operations]]:
    app: App[Any] = App(app_store.name, store=app_store.url)
    async with app:
        store = app.runtime.store
        operations = Operations(store, "test")
        yield store, operations
        await operations.failure_counts.close()


async def test_items_that_come_from_queries_are_found_on_every_store(app_store: AppStore) -> None:
    async with opened(app_store) as (store, operations):
        now = time.time_ns() // 1_000_000
        worker = Worker(store, "w1")
        await open_worker(store)
        await limit(store, "a", cap=2)
        await add(store, *tasks(14), task("unknown", at=now - 2 * MINUTE), task("b"))
        runs = await worker.runs("a")
        assert len(runs) == 2
        assert len(await worker.runs("b")) == 1
        error = msgspec.json.encode(TaskFailure("ValueError", "no order"))
        await worker.settle(*[worker.failed(uuid, error) for uuid in worker.leases if uuid not in runs])
        for ago in range(2, 6):
            await write(store, now, ago, FigureRecord({"b": SourceFigures(0, 0, 20)}, full().depth))
        await write(store, now, 80, FigureRecord({"b": SourceFigures(0, 100)}), "ten_minutes")
        found: dict[str, AttentionItem] = {}

        async def has_all() -> bool:
            found.clear()
            found.update({item.kind: item for item in await operations.attention()})
            return "failures" in found

        await until(has_all)
        assert set(found) == {"no_worker", "failures", "failure_share", "limit"}
        assert (found["no_worker"].source, found["no_worker"].size) == ("unknown", 1)
        assert (found["failures"].source, found["failures"].text) == ("b", "1× ValueError: no order")
        assert (found["failure_share"].source, found["failure_share"].size) == ("b", 80)
        assert (found["limit"].size, {each.uuid for each in found["limit"].holders}) == (12, set(runs))
        assert {each.worker for each in found["limit"].holders} == {"w1"}
        await store.close_session("w1")
