"""One reader of the change feed for many listeners, with time made by the test."""

from __future__ import annotations

import asyncio

import pytest

from onthedot.operations.feed_listener import MAX_BYTES, TransitionsMessage, Watch
from onthedot.stores.contract import ChangePage, Limit, NewEvent
from onthedot.stores.memory import change_log
from tests.unit.operations.feed_shop import WORKER, invalidated, of_kind, opened, uuids, waiting


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


async def test_buffer_of_a_mebibyte_becomes_one_reset() -> None:
    async with opened() as shop:
        slow = shop.feed.listen()
        quick = shop.feed.listen()
        await shop.step()
        waiting(slow)
        large = "x" * (MAX_BYTES // 4)
        for number in range(3):
            shop.feed.publish("note", {"number": number, "text": large})
            assert len(of_kind("note", waiting(quick))) == 1
        assert len(of_kind("note", waiting(slow))) == 3
        for number in range(4):
            shop.feed.publish("note", {"number": number, "text": large})
            assert len(of_kind("note", waiting(quick))) == 1
        assert [message.kind for message in waiting(slow)] == ["reset"]
        shop.feed.publish("counts", large * 8)  # alone, a message may be larger
        shop.feed.publish("counts", large * 9)  # it replaces the other one
        assert of_kind("counts", waiting(slow)) == [large * 9]


async def test_listener_begins_at_a_position_from_which_another_can_continue() -> None:
    async with opened() as shop:
        listener = shop.feed.listen()
        begin = await listener.begin()
        await shop.add("1")
        await shop.step(100)
        assert uuids(waiting(listener)) == ["1"]
        assert await listener.begin() == begin
        other = shop.feed.listen(last_id=begin)
        await shop.step()
        assert uuids(waiting(other)) == ["1"]


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
        assert invalidated(waiting(listener)) == {"limits", "sources"}
        await shop.store.heartbeat(WORKER, b"{}", 10**9)
        for _ in range(20):
            await shop.step(100)
        assert invalidated(waiting(listener)) == {"workers"}
        await shop.store.heartbeat(WORKER, b'{"sources": ["b"]}', 10**9)
        for _ in range(20):
            await shop.step(100)
        assert invalidated(waiting(listener)) == {"sources"}


async def test_new_failure_invalidates_failures_although_their_number_stays() -> None:
    async with opened() as shop:
        await shop.add("1")
        await shop.fail("1")
        listener = shop.feed.listen()
        await shop.step()
        waiting(listener)
        await shop.store.revive(["1"])
        await shop.fail("1")
        await shop.step(1_000)
        assert invalidated(waiting(listener)) == {"failures"}
        await shop.add("2")
        await shop.step(1_000)
        assert invalidated(waiting(listener)) == set()
        await shop.store.revive(["1"])
        await shop.step(1_000)
        assert invalidated(waiting(listener)) == {"failures"}


async def test_published_event_invalidates_the_outbox() -> None:
    async with opened() as shop:
        listener = shop.feed.listen()
        await shop.step()
        waiting(listener)
        await shop.store.publish([NewEvent(id="e", topic="shop", key="k", bucket=0, payload=b"{}")])
        await shop.step(2_000)
        assert invalidated(waiting(listener)) == {"outbox"}
        await shop.step(2_000)
        assert invalidated(waiting(listener)) == set()


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


async def test_listener_that_comes_during_an_outage_learns_of_it() -> None:
    async with opened() as shop:
        shop.store.is_away = True
        shop.feed.listen()
        await shop.step()
        late = shop.feed.listen()
        assert await late.begin() == ""
        (away,) = waiting(late)
        assert (away.kind, getattr(away.data, "get", str)("error")) == ("store", "no route")


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
