"""Sessions of components: opened when needed, renewed while the loop runs, replaced when they are over."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreUnavailable
from onthedot.operations.workers import live_components, live_workers
from onthedot.stores.contract import HeartbeatResult
from tests.support.waits import every_chance, until
from tests.unit.events.relay_steps import LeasedMemoryStore, Setup, event, failing


def leased() -> Setup:
    clock = ManualClock()
    return Setup(LeasedMemoryStore(clock), clock)


async def test_session_is_renewed_with_a_lease_of_five_seconds() -> None:
    setup = leased()
    session = setup.session()
    name = await session.ready()
    for _ in range(30):
        await every_chance()
        setup.clock.advance(1_000)
    await every_chance()
    assert list(await setup.store.sessions()) == [name]
    await session.close()
    assert await setup.store.sessions() == {}
    assert setup.clock.due_times() == []


async def test_session_that_nothing_renews_ends_after_five_seconds() -> None:
    setup = leased()
    session = setup.session()
    await session.ready()
    setup.clock.advance(5_000)
    assert await setup.store.sessions() == {}
    await session.close()


async def test_session_is_replaced_after_its_lease_has_run_out() -> None:
    setup = leased()
    session = setup.session()
    woken: list[int] = []
    session.on_hint(lambda: woken.append(1))
    first = await session.ready()
    await every_chance()
    woken.clear()
    setup.store.heartbeat = failing(setup.store.heartbeat, 20, StoreUnavailable("cut off"))  # type: ignore[method-assign]
    for _ in range(12):
        setup.clock.advance(500)
        await every_chance()
    assert woken, "components learn that it is over"
    setup.store.heartbeat = LeasedMemoryStore.heartbeat.__get__(setup.store)  # type: ignore[method-assign]
    second = await session.ready()
    assert second != first
    assert list(await setup.store.sessions()) == [second]
    assert setup.observer.named("component_lost") == [("relay", first)]
    await session.close()


async def test_session_whose_opening_was_cancelled_is_not_lost() -> None:
    """As by the first look of a process that runs until it is idle."""
    setup = leased()
    session = setup.session()
    heartbeat = setup.store.heartbeat
    setup.store.heartbeat = never  # type: ignore[method-assign]
    opening = asyncio.create_task(session.ready())
    await every_chance()
    opening.cancel()
    await asyncio.wait([opening])
    setup.store.heartbeat = heartbeat  # type: ignore[method-assign]
    assert await session.ready() in await setup.store.sessions()
    assert setup.observer.named("component_lost") == []
    await session.close()


async def never(*_: object) -> HeartbeatResult:
    return await asyncio.Future()


async def test_only_the_first_of_several_components_replaces_a_session() -> None:
    setup = Setup()
    session = setup.session()
    first = await session.ready()
    await session.replace(first)
    second = session.id
    await session.replace(first)
    assert session.id == second
    await session.close()


async def test_components_are_not_listed_as_workers() -> None:
    setup = Setup()
    session = setup.session("relay")
    await setup.store.heartbeat("w1", b'{"host": "a"}', 10_000)
    name = await session.ready()
    assert [worker.id for worker in await live_workers(setup.store)] == ["w1"]
    (component,) = await live_components(setup.store)
    assert (component.id, component.component) == (name, "relay")
    info = msgspec.json.decode((await setup.store.sessions())[name])
    assert info.keys() == {"component", "host", "pid", "app", "version", "started", "bus"}
    await session.close()


async def test_hints_about_tasks_wake_no_component() -> None:
    setup = Setup()
    session = setup.session()
    await setup.store.relay(await session.ready(), (), {}, None)
    woken: list[int] = []
    session.on_hint(lambda: woken.append(1))
    await until(lambda: session.is_listening)
    woken.clear()
    await setup.store.signal([])
    await every_chance()
    assert woken == []
    await session.close()


async def test_watcher_knows_each_session_of_a_store_with_leases() -> None:
    setup = leased()
    watched: list[str] = []

    class Watcher:
        def watch_session(self, session: str, lease: int, store: str) -> None:
            assert (lease, store) == (5_000, "")
            watched.append(f"+{session}")

        def unwatch_session(self, session: str) -> None:
            watched.append(f"-{session}")

    session = setup.session(watcher=Watcher())
    name = await session.ready()
    await session.replace(name)
    last = session.id
    await session.close()
    assert watched == [f"+{name}", f"-{name}", f"+{last}", f"-{last}"]


@pytest.mark.parametrize("times", [1, 3])
async def test_session_that_could_not_be_opened_is_opened_later(times: int) -> None:
    setup = leased()
    session = setup.session()
    setup.store.heartbeat = failing(setup.store.heartbeat, times, StoreUnavailable("gone"))  # type: ignore[method-assign]
    for _ in range(times):
        with pytest.raises(StoreUnavailable):
            await session.ready()
    name = await session.ready()
    assert list(await setup.store.sessions()) == [name]
    await setup.publish(event())
    await session.close()
