"""Resume handles: complete once, when all expected events have arrived, early, late or twice."""

from __future__ import annotations

from math import floor

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Arrival, HandleStatus, Store
from tests.contract.event_steps import handle, outbox
from tests.contract.steps import Worker, task

HOUR = 3_600_000
DAY = 86_400_000


def arrival(event_id: str, kind: str = "Done", correlation_id: str = "c1") -> Arrival:
    return Arrival(correlation_id, event_id, kind, b'{"id":"%s"}' % event_id.encode())


async def arrive(store: Store, *arrivals: Arrival) -> list[str]:
    """The ids of handles that are complete after it."""
    await outbox(store).record_arrivals(arrivals)
    correlation_ids = [each.correlation_id for each in arrivals]
    return [each.id for each in await outbox(store).complete_handles(correlation_ids)]


async def status(store: Store, handle_id: str = "h1", correlation_id: str = "c1") -> HandleStatus:
    (found,) = [each for each in await outbox(store).handles([correlation_id]) if each.id == handle_id]
    return found.status


async def test_handle_is_complete_after_the_last_event(store: Store, clock: ManualClock) -> None:
    created = await outbox(store).create_handle(handle(expected=((("Done",), 3),)))
    assert (created.status, created.created) == ("pending", floor(clock.now()))
    assert created.expires_at == created.created + 60_000
    assert await arrive(store, arrival("1"), arrival("2")) == []
    assert await arrive(store, arrival("2"), arrival("1")) == [], "a copy does not count"
    assert await arrive(store, arrival("3", correlation_id="c2")) == []
    assert await arrive(store, arrival("4", kind="Begun")) == []
    assert await arrive(store, arrival("5")) == ["h1"]
    assert await status(store) == "complete"
    (found,) = await outbox(store).handles(["c1"])
    assert (found.expected, found.target, found.ended) == (((("Done",), 3),), "signal", floor(clock.now()))


async def test_events_may_come_before_the_handle(store: Store) -> None:
    assert await arrive(store, arrival("1"), arrival("2")) == []
    await outbox(store).create_handle(handle(expected=((("Done",), 2),)))
    assert [each.id for each in await outbox(store).complete_handles(["c1"])] == ["h1"]


async def test_either_of_several_types_counts(store: Store) -> None:
    await outbox(store).create_handle(handle(expected=((("Done", "Failed"), 2), (("Paid",), 1))))
    assert await arrive(store, arrival("1", "Done"), arrival("2", "Failed")) == []
    assert await arrive(store, arrival("3", "Paid")) == ["h1"]


async def test_complete_handle_is_answered_until_it_is_resumed(store: Store) -> None:
    await outbox(store).create_handle(handle())
    assert await arrive(store, arrival("1")) == ["h1"]
    assert [each.id for each in await outbox(store).complete_handles(["c1"])] == ["h1"]
    assert list(await outbox(store).complete_handles(["c1"], ["h1"])) == []
    assert await status(store) == "resumed"
    assert list(await outbox(store).complete_handles(["c1"])) == []
    assert await arrive(store, arrival("2")) == [], "a late event changes nothing"


async def test_pending_handle_is_not_resumed(store: Store) -> None:
    await outbox(store).create_handle(handle())
    await outbox(store).complete_handles([], ["h1", "unknown"])
    assert await status(store) == "pending"


async def test_handle_expires(store: Store, clock: ManualClock) -> None:
    created = await outbox(store).create_handle(handle(timeout=1000))
    clock.advance(999)
    assert await status(store) == "pending"
    clock.advance(1)
    assert await status(store) == "expired"
    assert await arrive(store, arrival("1")) == []
    (found,) = await outbox(store).handles(["c1"])
    assert (found.status, found.ended) == ("expired", created.expires_at)


async def test_existing_handle_is_the_answer(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first = await outbox(store).create_handle(handle("h1"), [task(uuid="t1")])
    assert await outbox(store).create_handle(handle("h1", timeout=5), [task(uuid="t2")]) == first
    assert (await outbox(store).create_handle(handle("h2"), [task(uuid="t3")])).id == "h1", "one waits at a time"
    assert await worker.runs() == ["t1"]
    await arrive(store, arrival("1"))
    assert (await outbox(store).create_handle(handle("h1"))).status == "complete"
    assert (await outbox(store).create_handle(handle("h2"))).id == "h2", "the other has ended"
    assert [each.id for each in await outbox(store).handles(["c1"])] == ["h1", "h2"]


async def test_new_handle_after_an_expired_one(store: Store, clock: ManualClock) -> None:
    await outbox(store).create_handle(handle("h1", timeout=1000))
    clock.advance(1000)
    assert (await outbox(store).create_handle(handle("h2"))).id == "h2"
    assert await status(store, "h1") == "expired"


async def test_arrivals_are_kept_in_order_with_the_first_copy(store: Store, clock: ManualClock) -> None:
    await outbox(store).record_arrivals([arrival("2"), arrival("1")])
    first = floor(clock.now())
    clock.advance(1000)
    await outbox(store).record_arrivals([Arrival("c1", "2", "Other", b"{}"), arrival("3"), arrival("3")])
    found = await outbox(store).arrivals("c1")
    assert [(each.event_id, each.type, each.at) for each in found] == [
        ("2", "Done", first), ("1", "Done", first), ("3", "Done", first + 1000),
    ]  # fmt: skip
    assert found[0].event == b'{"id":"2"}'
    assert list(await outbox(store).arrivals("c9")) == []


async def test_handles_and_arrivals_are_purged(store: Store, clock: ManualClock) -> None:
    await outbox(store).create_handle(handle("h1", "c1"))
    await arrive(store, arrival("1"), arrival("2", correlation_id="c2"))
    await outbox(store).create_handle(handle("h3", "c3", timeout=10 * DAY))
    await arrive(store, arrival("3", correlation_id="c3", kind="Other"))

    async def purge() -> int:
        return await outbox(store).purge_events(100, keep_sent=7 * DAY, keep_arrivals=HOUR)

    clock.advance(3599000)
    assert await purge() == 0
    clock.advance(1000)
    assert await purge() == 1, "an arrival without a handle"
    assert list(await outbox(store).arrivals("c2")) == []
    clock.advance(7 * DAY)
    assert await purge() == 1, "a handle with its arrivals"
    assert list(await outbox(store).handles(["c1"])) == []
    assert list(await outbox(store).arrivals("c1")) == []
    assert len(await outbox(store).arrivals("c3")) == 1, "it waits"
    assert await status(store, "h3", "c3") == "pending"
    clock.advance(3 * DAY)
    await purge()
    assert dict((await outbox(store).outbox_state()).handles) == {"expired": 1}
    clock.advance(7 * DAY)
    await purge()
    assert list(await outbox(store).handles(["c3"])) == []
