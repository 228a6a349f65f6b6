"""hints: notifications that may be lost, doubled or late; every (re)connect begins with a resync."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import cast

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Hint, Store
from tests.contract.steps import Worker, add, limit, task, tasks
from tests.support.waits import SOON

PATIENCE = SOON  # seconds; a missing hint is a failure


class Listener:
    def __init__(self, store: Store, session: str) -> None:
        self.hints: AsyncIterator[Hint] = store.hints(session)

    async def hears(self, wanted: Callable[[Hint], object]) -> Hint:
        async def look() -> Hint:
            async for hint in self.hints:
                if wanted(hint):
                    return hint
            raise AssertionError("the hints ended")

        return await asyncio.wait_for(look(), PATIENCE)

    async def hears_of(self, source: str) -> None:
        await self.hears(lambda hint: source in hint.sources)

    async def hears_the_end_of(self, uuid: str) -> None:
        await self.hears(lambda hint: uuid in hint.ended)

    async def connected(self) -> None:
        assert (await self.hears(lambda _: True)).resync

    async def leave(self) -> None:
        await cast("AsyncGenerator[Hint, None]", self.hints).aclose()


async def listening(store: Store, worker: Worker) -> Listener:
    await worker.heartbeat()
    await worker.claim("none")
    listener = Listener(store, worker.name)
    await listener.connected()
    return listener


async def test_hints_begin_with_a_resync(store: Store, worker: Worker) -> None:
    listener = await listening(store, worker)
    await listener.leave()


async def test_ready_task_is_hinted(store: Store, worker: Worker) -> None:
    listener = await listening(store, worker)
    await add(store, task("b"))
    await listener.hears_of("b")
    await listener.leave()


async def test_earlier_alarm_is_hinted(store: Store, worker: Worker) -> None:
    listener = await listening(store, worker)
    await add(store, task("b", after=5000))
    await listener.hears_of("b")
    await add(store, task("c", after=1000))
    await listener.hears_of("c")
    await listener.leave()


async def test_task_with_a_lane_is_hinted(store: Store, worker: Worker) -> None:
    listener = await listening(store, worker)
    await add(store, task("b", lane="b/k"))
    await listener.hears_of("b")
    await listener.leave()


async def test_released_task_is_hinted(store: Store, worker: Worker, other: Worker) -> None:
    await other.heartbeat()
    for how in ("retry", "release", "close", "death"):
        who = Worker(store, f"w-{how}")
        await who.heartbeat()
        (uuid,) = await add(store, task(how))
        assert await who.runs(how) == [uuid]
        listener = await listening(store, worker)
        if how in ("retry", "release"):
            await who.settle(getattr(who, how)(uuid))
        else:
            await (store.close_session(who.name) if how == "close" else who.crash())
        await listener.hears_of(how)
        await listener.leave()


async def test_released_capacity_is_hinted(store: Store, worker: Worker, other: Worker) -> None:
    await other.heartbeat()
    await limit(store, "b", cap=1)
    await limit(store, "c/*", cap=1)
    b1, *_ = await add(store, *tasks(2, "b"))
    c1, *_ = await add(store, *tasks(2, "c", lane="c/k"))
    assert await other.runs("b", "c") == [b1, c1]
    listener = await listening(store, worker)
    await other.settle(other.done(b1))
    await listener.hears_of("b")
    await other.settle(other.done(c1))
    await listener.hears_of("c")
    await listener.leave()


async def test_changed_limit_is_hinted(store: Store, worker: Worker) -> None:
    await limit(store, "b", paused=True, owner="operator")
    await add(store, task("b"))
    listener = await listening(store, worker)
    await limit(store, "b", owner="operator")
    await listener.hears_of("b")
    await listener.leave()


async def test_revived_task_is_hinted(store: Store, worker: Worker, other: Worker) -> None:
    await other.heartbeat()
    (uuid,) = await add(store, task("b"))
    await other.run_to_failure(uuid, "b")
    listener = await listening(store, worker)
    await store.revive([uuid])
    await listener.hears_of("b")
    await listener.leave()


async def test_cancel_request_is_hinted_to_the_running_session(store: Store, worker: Worker, other: Worker) -> None:
    listener = await listening(store, worker)
    (uuid,) = await add(store, task("b"))
    assert await worker.runs("b") == [uuid]
    await store.cancel(other.name, [uuid])
    await listener.hears(lambda hint: uuid in hint.cancel_requests)
    await listener.leave()


async def test_end_is_hinted_to_the_waiting_session(store: Store, worker: Worker, other: Worker) -> None:
    await other.heartbeat()
    for keep in (0, 1000):
        (uuid,) = await add(store, task("b", reply_to=worker.name))
        await other.runs("b")
        listener = await listening(store, worker)
        await other.settle(other.done(uuid, keep=keep))
        await listener.hears_the_end_of(uuid)
        await listener.leave()


async def test_hints_need_no_session(store: Store, other: Worker) -> None:
    await other.heartbeat()
    (uuid,) = await add(store, task("b", reply_to="client"))
    await other.runs("b")
    listener = Listener(store, "client")
    await listener.connected()
    await other.settle(other.failed(uuid))
    await listener.hears_the_end_of(uuid)
    await listener.leave()


async def test_task_is_claimed_without_a_listener(store: Store, worker: Worker) -> None:
    listener = await listening(store, worker)
    await listener.leave()
    (uuid,) = await add(store, task("b", reply_to=worker.name))
    assert await worker.runs("b") == [uuid]
    again = Listener(store, worker.name)
    await again.connected()
    await worker.settle(worker.done(uuid))
    await add(store, task("c"))
    await again.hears_of("c")
    await again.leave()


async def test_slow_listener_gets_every_hint(store: Store, worker: Worker, other: Worker) -> None:
    listener = await listening(store, worker)
    sources = {f"s{number}" for number in range(50)}
    for source in sources:
        await add(store, task(source))
    received: set[str] = set()

    def enough(hint: Hint) -> bool:
        received.update(hint.sources)
        return hint.resync or sources <= received

    await listener.hears(enough)
    await listener.leave()


async def test_closed_session_gets_no_hint(store: Store, worker: Worker, other: Worker, clock: ManualClock) -> None:
    listener = await listening(store, worker)
    await store.close_session(worker.name)
    await add(store, *tasks(3, "b", reply_to=worker.name))
    await other.heartbeat()
    running = await other.runs("b")
    assert len(running) == 3
    assert await other.settle(*(other.done(uuid) for uuid in running)) == ["ok"] * 3
    await listener.leave()
