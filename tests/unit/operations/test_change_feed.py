"""One reader of the change feed for many listeners, with time made by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreUnavailable
from onthedot.operations import Operations
from onthedot.operations.change_feed import ChangeFeed
from onthedot.operations.feed_listener import FeedListener, FeedMessage, TransitionsMessage, Watch
from onthedot.stores.contract import ChangePage, ClaimRequest, Ended, Lease, Limit, NewTask, SlotPool
from onthedot.stores.memory import MemoryStore, change_log

WORKER = "w"


class SlowStore(MemoryStore):
    """Counts reads, which may take time or fail."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._clock_of_test = clock
        self.reads = 0
        self.duration = 0.0
        self.is_away = False

    async def changes(self, after: str, limit: int, resolve: int = 0) -> ChangePage:
        self.reads += 1
        if self.is_away:
            raise StoreUnavailable("no route")
        self._clock_of_test.advance(self.duration)
        return await super().changes(after, limit, resolve)


class Shop:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = SlowStore(self.clock)
        self.feed: ChangeFeed = Operations(self.store, "c", self.clock).feed
        self.number = 0

    async def add(self, *uuids: str, source: str = "a") -> None:
        await self.store.add([NewTask(uuid, source, b"{}") for uuid in uuids])

    async def fail(self, uuid: str) -> None:
        await self.store.heartbeat(WORKER, b"{}", 10**9)
        self.number += 1
        turn = await self.store.turn(WORKER, [], ClaimRequest(self.number, [SlotPool(100, {"a": 100})]))
        assert turn.claim is not None
        await self.store.turn(WORKER, [Ended(Lease(uuid, turn.claim.fence, WORKER), "failed", b"boom")], None)

    async def step(self, ms: float = 0) -> None:
        """Time passes, and everything that is due happens."""
        self.clock.advance(ms)
        for _ in range(30):
            await asyncio.sleep(0)

    async def pause(self) -> float:
        """The pause that begins now, in ms."""
        await self.step()
        due = self.clock.next_timer()
        assert due is not None
        return due - self.clock.now()


@asynccontextmanager
async def opened() -> AsyncIterator[Shop]:
    shop = Shop()
    try:
        yield shop
    finally:
        await shop.feed.close()
        assert not shop.feed.is_reading


def waiting(listener: FeedListener) -> list[FeedMessage]:
    """All messages that wait."""
    messages: list[FeedMessage] = []
    while True:
        try:
            listener.next().send(None)
        except StopIteration as answer:
            messages.append(answer.value)
        else:
            return messages


def of_kind(kind: str, messages: Sequence[FeedMessage]) -> list[object]:
    return [message.data for message in messages if message.kind == kind]


def uuids(messages: Sequence[FeedMessage]) -> list[str]:
    found: list[str] = []
    for data in of_kind("transitions", messages):
        assert isinstance(data, TransitionsMessage)
        assert data.more == 0
        found += [transition.uuid for transition in data.transitions]
    return found


async def test_store_is_read_only_while_there_are_listeners() -> None:
    async with opened() as shop:
        await shop.step(10_000)
        assert shop.store.reads == 0
        first = shop.feed.listen()
        second = shop.feed.listen()
        await shop.step()
        for _ in range(10):
            await shop.step(100)
        reads = shop.store.reads
        assert 10 <= reads <= 12  # shared by both
        first.close()
        second.close()
        await shop.step()
        assert (shop.feed.is_reading, shop.feed.listener_count) == (False, 0)
        await shop.step(10_000)
        assert shop.store.reads == reads


async def test_listeners_get_the_transitions_that_they_watch() -> None:
    async with opened() as shop:
        await shop.add("before")
        every = shop.feed.listen()
        some = shop.feed.listen(Watch(matches=lambda each: each.source == "b"))
        none = shop.feed.listen(Watch(transitions=False))
        await shop.step()
        await shop.add("1")
        await shop.add("2", source="b")
        await shop.step(100)
        assert uuids(waiting(every)) == ["1", "2"]
        assert uuids(waiting(some)) == ["2"]
        assert uuids(waiting(none)) == []


@pytest.mark.parametrize(("watch", "shortest"), [(Watch(), 100), (Watch(transitions=False), 250)])
async def test_pause_is_fifty_times_the_read_and_at_most_two_seconds(watch: Watch, shortest: int) -> None:
    async with opened() as shop:
        shop.feed.listen(watch)
        assert await shop.pause() == shortest
        shop.store.duration = 10
        shop.clock.advance(shortest)
        assert await shop.pause() == 500
        shop.store.duration = 300
        shop.clock.advance(500)
        assert await shop.pause() == 2_000


async def test_reconnected_listener_misses_and_doubles_nothing() -> None:
    """Also while no other listener keeps the feed reading."""
    async with opened() as shop:
        listener = shop.feed.listen()
        seen: list[str] = []
        last_id = ""
        added = 0
        await shop.step()
        for round_number in range(12):
            for _ in range(round_number % 4):
                await shop.add(str(added), f"{added}+")
                added += 1
                await shop.step(100)
            messages = waiting(listener)
            seen += uuids(messages)
            last_id = next((message.id for message in reversed(messages) if message.id), last_id)
            listener.close()
            await shop.step(30 * round_number)
            for _ in range(20):
                await shop.add(str(added), f"{added}+")
                added += 1
            listener = shop.feed.listen(last_id=last_id)
            await shop.step()
        await shop.step(100)
        messages = waiting(listener)
        assert of_kind("reset", messages) == []
        assert seen + uuids(messages) == [name for number in range(added) for name in (str(number), f"{number}+")]


async def test_unknown_position_is_a_reset() -> None:
    async with opened() as shop:
        first = shop.feed.listen()
        await shop.step()
        await shop.add("1")
        await shop.step(100)
        (position,) = {message.id for message in waiting(first) if message.kind == "transitions"}
        first.close()
        for unknown in ("0.1", position.replace(".", ".9"), "?"):
            listener = shop.feed.listen(last_id=unknown)
            await shop.step()
            assert [message.kind for message in waiting(listener)][:1] == ["reset"]
            listener.close()
        await shop.add("2")
        await shop.step(40_000)  # longer than a replay is kept
        late = shop.feed.listen(last_id=position)
        await shop.step()
        assert of_kind("reset", waiting(late)) == [None]


async def test_gap_in_the_log_is_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "MAX_TRANSITIONS", 50)
    async with opened() as shop:
        listener = shop.feed.listen()
        await shop.step()
        waiting(listener)
        for number in range(10):
            await shop.add(*(f"{number}-{each}" for each in range(20)))
        await shop.step(100)
        messages = waiting(listener)
        assert of_kind("reset", messages) == [None]
        assert of_kind("transitions", messages) == []
        await shop.add("after")
        await shop.step(100)
        assert uuids(waiting(listener)) == ["after"]


async def test_transitions_are_merged_and_the_rest_is_counted() -> None:
    async with opened() as shop:
        slow = shop.feed.listen()
        await shop.step()
        for number in range(3):
            await shop.add(*(f"{number}-{each}" for each in range(150)))  # 100 of each read are resolved
            await shop.step(100)
        (data,) = of_kind("transitions", waiting(slow))
        assert isinstance(data, TransitionsMessage)
        assert (len(data.transitions), data.more) == (200, 250)
        assert data.transitions[-1].uuid == "2-149"


async def test_full_buffer_becomes_one_reset() -> None:
    async with opened() as shop:
        slow = shop.feed.listen()
        quick = shop.feed.listen()
        await shop.step()
        waiting(slow)
        for number in range(70):
            shop.feed.publish("bulk_action", number)
            assert of_kind("bulk_action", waiting(quick)) == [number]
        messages = waiting(slow)
        assert messages[0].kind == "reset"
        assert of_kind("bulk_action", messages) == [65, 66, 67, 68, 69]
        for _ in range(100):
            await shop.add("x", "y")
            await shop.step(1_000)
            shop.feed.throughput.fold([], shop.clock.now())
        assert len(waiting(slow)) < 5  # counts and rates replace their predecessors


async def test_id_is_not_ahead_of_transitions_that_wait() -> None:
    async with opened() as shop:
        listener = shop.feed.listen()
        await shop.step()
        waiting(listener)
        shop.feed.publish("attention", 1)
        await shop.add("1")
        await shop.step(100)
        first = await listener.next()
        second = await listener.next()
        assert (first.kind, first.id) == ("attention", "")
        assert (second.kind, bool(second.id)) == ("transitions", True)


async def test_counts_and_rates_are_sent_when_they_change() -> None:
    async with opened() as shop:
        listener = shop.feed.listen(Watch(transitions=False))
        await shop.step()
        waiting(listener)
        await shop.add("1", "2")
        await shop.fail("1")
        for _ in range(6):
            await shop.step(250)
        messages = waiting(listener)
        assert of_kind("counts", messages) == [{"a": {"running": 1, "failed": 1}}]
        (rates,) = of_kind("rates", messages)
        assert isinstance(rates, dict)
        assert rates["a"].started == 2 * rates["a"].failed > 0
        late = shop.feed.listen(Watch(transitions=False))
        assert {message.kind for message in waiting(late)} == {"counts", "rates"}


async def test_counts_are_not_those_of_before_a_long_pause() -> None:
    async with opened() as shop:
        first = shop.feed.listen(Watch(transitions=False))
        await shop.step()
        await shop.add("1")
        for _ in range(6):
            await shop.step(250)
        first.close()
        await shop.step(250)
        await shop.add("2")
        await shop.step(40_000)
        late = shop.feed.listen(Watch(transitions=False))
        for _ in range(2):
            await shop.step(250)
        assert of_kind("counts", waiting(late)) == [{"a": {"ready": 2}}]


async def test_watched_and_failed_tasks_are_read() -> None:
    async with opened() as shop:
        await shop.add("1", "2")
        watching = shop.feed.listen(Watch(transitions=False, uuids=frozenset({"2"})))
        failures = shop.feed.listen(Watch(transitions=False, failures=True))
        await shop.step()
        await shop.fail("1")
        for _ in range(4):
            await shop.step(250)
        (second,) = of_kind("task", waiting(watching))
        (first,) = of_kind("task", waiting(failures))
        assert (getattr(second, "uuid", ""), getattr(second, "state", "")) == ("2", "running")
        assert (getattr(first, "uuid", ""), getattr(first, "state", "")) == ("1", "failed")


async def test_changed_limit_is_reported_at_once_after_a_recheck() -> None:
    async with opened() as shop:
        listener = shop.feed.listen()
        await shop.step()
        waiting(listener)
        await shop.store.put_limits([Limit("a", paused=True, owner="operator")])
        shop.feed.recheck()
        await shop.step()
        assert of_kind("invalidate", waiting(listener)) == [{"what": "limits"}]
        await shop.store.heartbeat(WORKER, b"{}", 10**9)
        for _ in range(20):
            await shop.step(100)
        assert of_kind("invalidate", waiting(listener)) == [{"what": "workers"}]


async def test_store_that_is_away_is_reported_once_and_when_it_is_back() -> None:
    async with opened() as shop:
        shop.store.is_away = True
        listener = shop.feed.listen()
        for _ in range(5):
            await shop.step(2_000)
        (away,) = waiting(listener)
        assert away.kind == "store"
        assert isinstance(away.data, dict)
        assert away.data["error"] == "no route"
        shop.store.is_away = False
        await shop.step(2_000)
        back = of_kind("store", waiting(listener))
        assert back == [{"unavailable_since": None, "error": ""}]
        await shop.add("1")
        await shop.step(100)
        assert uuids(waiting(listener)) == ["1"]


async def test_closed_listener_ends_its_iteration() -> None:
    async with opened() as shop:
        listener = shop.feed.listen()
        await shop.step()
        waiting(listener)
        reader = asyncio.ensure_future(listener.next())
        await shop.step()
        listener.close()
        with pytest.raises(StopAsyncIteration):
            await reader
        again = shop.feed.listen()
        assert shop.feed.listener_count == 1
        await shop.step()
        await shop.add("1")
        await shop.step(100)
        assert uuids(waiting(again)) == ["1"]


async def test_error_of_the_feed_reaches_its_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as shop:
        listener = shop.feed.listen()
        await shop.step()
        waiting(listener)

        async def broken(*_: object) -> ChangePage:
            raise RuntimeError("a defect")

        monkeypatch.setattr(shop.store, "changes", broken)
        await shop.step(100)
        with pytest.raises(RuntimeError, match="a defect"):
            await listener.next()
        listener.close()
