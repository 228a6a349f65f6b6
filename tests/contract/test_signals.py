"""Signals: kept under a name, in order, each once per id; they raise the counter of their name."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreFull
from onthedot.stores.contract import MAX_KEPT_SIGNALS, NewSignal, SignalPage, Store, StoredSignal
from tests.contract.steps import Worker, add, look, state, task, waiting

DAY = 86_400_000


async def send(store: Store, name: str, signal_id: str, payload: bytes = b"", keep: int = DAY) -> bool:
    (answer,) = await store.signal([NewSignal(name, signal_id, payload, keep)])
    return answer


async def sent(store: Store, name: str, after: int = 0, limit: int = 100) -> list[tuple[str, bytes]]:
    return [(signal.id, signal.payload) for signal in (await store.signals(name, after, limit)).signals]


async def test_nothing_was_sent(store: Store) -> None:
    page = await store.signals("~paid", 0, 10)
    assert (page.value, list(page.signals)) == (0, [])


async def test_signals_are_kept_in_order_with_growing_numbers(store: Store, clock: ManualClock) -> None:
    clock.advance(0.5)
    assert list(await store.signal([NewSignal("~paid", "1", b"a"), NewSignal("~paid", "2", b"b")])) == [True, True]
    assert await send(store, "~other", "1", b"x")
    clock.advance(1000)
    assert await send(store, "~paid", "3", b"c")
    now = floor(clock.now())
    page = await store.signals("~paid", 0, 10)
    expected = [
        StoredSignal(now - 1000, "1", b"a"),
        StoredSignal(now - 999, "2", b"b"),
        StoredSignal(now, "3", b"c"),
    ]
    assert SignalPage(page.value, list(page.signals)) == SignalPage(now, expected)
    assert await sent(store, "~paid", now - 1000) == [("2", b"b"), ("3", b"c")]
    assert await sent(store, "~paid", 0, 1) == [("1", b"a")]
    assert await sent(store, "~other") == [("1", b"x")]


async def test_first_payload_of_an_id_stays(store: Store) -> None:
    assert await send(store, "~paid", "1", b"first")
    assert not await send(store, "~paid", "1", b"second")
    twice = [NewSignal("~paid", "2", b"first"), NewSignal("~paid", "2", b"second")]
    assert list(await store.signal(twice)) == [True, False]
    before = await store.signals("~paid", 0, 10)
    assert list(await store.signal(twice)) == [False, False]
    assert await sent(store, "~paid") == [("1", b"first"), ("2", b"first")]
    assert (await store.signals("~paid", 0, 10)).value == before.value


async def test_number_grows_also_if_the_clock_is_set_back(store: Store, clock: ManualClock) -> None:
    await send(store, "~paid", "1")
    first = (await store.signals("~paid", 0, 10)).value
    clock.advance(-500)
    await send(store, "~paid", "2")
    assert (await store.signals("~paid", 0, 10)).value == first + 1


async def test_signal_ends_the_wait_of_every_task(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    uuids = await add(store, waiting(("~paid", 1)), waiting(("~paid", 1)))
    await worker.runs()
    await send(store, "~paid", "1")
    assert await worker.runs() == uuids


async def test_signal_before_the_wait_is_found(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    seen = (await store.signals("~paid", 0, 10)).value
    await send(store, "~paid", "1")
    assert await worker.runs(outcomes=[worker.suspended(uuid, ("~paid", seen + 1))]) == [uuid]


async def test_second_wait_is_for_a_later_signal(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    await send(store, "~paid", "1")
    value = (await store.signals("~paid", 0, 10)).value
    assert await worker.runs(outcomes=[worker.suspended(uuid, ("~paid", value + 1))]) == []
    assert not await send(store, "~paid", "1"), "a repeat raises nothing"
    assert await worker.runs() == []
    clock.advance(1000)
    await send(store, "~paid", "2")
    assert await worker.runs() == [uuid]


async def test_signal_after_a_timeout_is_kept(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    await worker.settle(worker.suspended(uuid, ("~paid", 1), timeout=1000))
    clock.advance(1000)
    assert await worker.runs() == [uuid]
    await send(store, "~paid", "1", b"late")
    assert await state(store, uuid) == "running"
    assert await sent(store, "~paid") == [("1", b"late")]


async def test_signal_of_a_cancelled_waiter_ends_nothing(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, waiting(("~paid", 1)))
    await worker.cancel(uuid)
    await send(store, "~paid", "1")
    assert await worker.runs() == []
    await worker.settle(worker.cancelled(uuid))
    assert await state(store, uuid) == "cancelled"


async def test_expired_signal_is_not_seen_and_its_id_is_free(store: Store, clock: ManualClock) -> None:
    await send(store, "~paid", "1", b"old")
    await send(store, "~paid", "2", b"kept", 2 * DAY)
    value = (await store.signals("~paid", 0, 10)).value
    clock.advance(DAY)
    assert await sent(store, "~paid") == [("2", b"kept")]
    assert (await store.signals("~paid", 0, 10)).value == value
    assert await send(store, "~paid", "1", b"new")
    assert await sent(store, "~paid") == [("2", b"kept"), ("1", b"new")]


async def test_purge_drops_expired_signals(store: Store, clock: ManualClock) -> None:
    await send(store, "~paid", "1")
    await send(store, "~paid", "2", b"", 2 * DAY)
    clock.advance(DAY)
    assert await store.purge(10) == 0
    assert await sent(store, "~paid") == [("2", b"")]
    clock.advance(DAY)
    await store.purge(10)
    assert await sent(store, "~paid") == []


async def test_names_of_kept_signals_are_listed_by_the_time_that_they_expire(store: Store, clock: ManualClock) -> None:
    assert list(await store.signal_names(10)) == []
    await send(store, "~paid", "1", b"", 2 * DAY)
    await send(store, "~ends", "1", b"", DAY)
    await send(store, "u1~approved", "1", b"", 3 * DAY)
    await send(store, "~paid", "2", b"", 4 * DAY)
    assert list(await store.signal_names(10)) == ["~paid", "u1~approved", "~ends"]
    assert list(await store.signal_names(2)) == ["~paid", "u1~approved"]
    assert list(await store.signal_names(1)) == ["~paid"]
    clock.advance(DAY)
    assert list(await store.signal_names(10)) == ["~paid", "u1~approved"], "one has expired, and none is purged"
    clock.advance(2 * DAY)
    await store.purge(10)
    assert list(await store.signal_names(10)) == ["~paid"]


async def test_numbers_grow_after_the_counter_was_purged(store: Store, worker: Worker, clock: ManualClock) -> None:
    await send(store, "~paid", "1")
    first = (await store.signals("~paid", 0, 10)).value
    clock.advance(40 * DAY)
    await store.purge(10)
    await send(store, "~paid", "2")
    assert (await store.signals("~paid", 0, 10)).value > first


async def test_name_keeps_a_bounded_number_of_signals(store: Store, clock: ManualClock) -> None:
    signals = [NewSignal("~paid", str(number), b"", DAY) for number in range(MAX_KEPT_SIGNALS - 1)]
    await store.signal(signals)
    last = NewSignal("~paid", "last", b"", DAY)
    with pytest.raises(StoreFull, match="~paid"):
        await store.signal([NewSignal("~other", "1"), last, NewSignal("~paid", "one more")])
    assert await sent(store, "~other") == []
    assert list(await store.signal([last, signals[0], last])) == [True, False, False]
    clock.advance(DAY)
    assert await send(store, "~paid", "later")


async def test_names_and_payloads_are_any_text_and_bytes(store: Store) -> None:
    name = "~Bestätigt «1» \\ ' %"
    await send(store, name, "ö/1", bytes(range(256)))
    assert await sent(store, name) == [("ö/1", bytes(range(256)))]


async def test_waiting_task_is_due_at_the_signal(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, waiting(("~paid", 1)))
    clock.advance(5000)
    await send(store, "~paid", "1")
    assert await worker.runs() == [uuid]
    assert (await look(store, uuid)).due == floor(clock.now())
