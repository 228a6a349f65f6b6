"""The callback service dies after storing arrivals, after completing a handle, and after signalling: one wake-up."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onthedot import App, AsyncTaskHandle
from onthedot.events import Event
from onthedot.model.component_names import CALLBACK
from onthedot.stores.capabilities import Outbox, capability
from tests.acceptance.row_e.event_systems import CREATED, FAILED, EventSystem, open_system
from tests.faults import LONG, scaled
from tests.faults.events.callback_app import STEPS
from tests.faults.worker_processes import forked_workers
from tests.support.waits import until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600 if LONG else 180)]

PROGRAM = "tests.faults.events.callback_app"
HANDLES = scaled(1, 10)
PARTS = 3
LEASE = 2  # seconds


@pytest.fixture(params=["sqlite", "kafka"])
def system(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventSystem]:
    """Also for the program, by the environment."""
    for system in open_system(request.param, request, tmp_path):
        if system.kafka is not None:
            system.store += f"?lease={LEASE}"
            system.bus = f"kafka://{system.kafka.address}?session_timeout=2"
        monkeypatch.setenv("APP", system.name)
        monkeypatch.setenv("BUS", system.bus)
        monkeypatch.setenv("TOPIC", system.results)
        yield system


def answers(correlation_id: str) -> list[Event[Any]]:
    """A type counts beside the other; a copy and another type do not count."""
    fields = {"aggregate_id": "s1", "correlation_id": correlation_id}
    kinds = [FAILED] + [CREATED] * (PARTS - 1)
    events = [
        Event(kind, {}, id=f"{correlation_id}-e{number}", key=f"k{number}", **fields)
        for number, kind in enumerate(kinds)
    ]
    other = Event("Genesis.Session.DetailBatchStarted", {}, id=f"{correlation_id}-other", **fields)
    return [other, events[0], events[0], *events[1:]]


async def is_waiting(handle: AsyncTaskHandle[Any]) -> bool:
    return (await handle.info()).state == "waiting"


class Orders:
    """Tasks that expect results, in an app whose worker runs here without a callback service."""

    def __init__(self, system: EventSystem) -> None:
        events = system.events(results=(CREATED, FAILED))
        self.app: App[Any] = App(system.name, store=system.store, events=events, stop_timeout=5)
        self.ids = [f"{system.name}-c{number}" for number in range(HANDLES)]
        self.ended: Counter[str] = Counter()
        self._handles: dict[str, AsyncTaskHandle[list[str]]] = {}

        @self.app.task
        async def order(correlation_id: str) -> list[str]:
            handle = await self.app.expect({(CREATED, FAILED): PARTS}, correlation_id=correlation_id, timeout=300)
            events = await handle.wait()
            self.ended[correlation_id] += 1
            return sorted(event.id for event in events)

        self._order = order

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with self.app.runtime.override(replace(self.app.runtime.config, without=frozenset({CALLBACK}))):
            async with self.app.running():
                yield
                assert await self.app.operations.failures() == []
        self.app.runtime.close()
        assert self.ended == dict.fromkeys(self.ids, 1)

    async def add(self) -> None:
        self._handles = {each: await self._order.enqueue(each) for each in self.ids}

    async def all_wait(self) -> None:
        for handle in self._handles.values():
            await until(lambda handle=handle: is_waiting(handle))

    async def check_results(self, correlation_id: str) -> None:
        found = await self._handles[correlation_id].result(90)
        assert found == [f"{correlation_id}-e{number}" for number in range(PARTS)]

    async def are_resumed(self) -> bool:
        return {await self.app.resume_handle(each).status() for each in self.ids} == {"resumed"}

    async def are_sent(self) -> bool:
        return (await self.app.operations.outbox.status()).pending == 0

    async def are_stored(self, correlation_id: str) -> bool:
        """Whether the callback service has stored all results."""
        outbox = capability(self.app.runtime.outbox_store, Outbox, "are_stored()")
        return len({arrival.event_id for arrival in await outbox.arrivals(correlation_id)}) == PARTS


def kills(run_log_path: Path) -> dict[str, int]:
    """By step."""
    return Counter(file.suffixes[-2].removeprefix(".") for file in run_log_path.parent.glob("run_log.*.*"))


def is_killed_at_each_step(run_log_path: Path, results: str) -> bool:
    """Early results of all handles come in fewer pages than handles, so they have fewer kills."""
    killed = kills(run_log_path)
    return killed.keys() == set(STEPS) and (results == "before expect" or set(killed.values()) == {HANDLES})


@pytest.mark.parametrize("results", ["after expect", "before expect"])
async def test_handle_completes_once_although_the_service_is_killed_after_each_of_its_steps(
    system: EventSystem, run_log_path: Path, results: str
) -> None:
    """The only callback service is in the processes that die. With results before expect, it starts after it."""
    orders = Orders(system)
    async with orders.running():
        if results == "before expect":
            for each in orders.ids:
                await orders.app.publish(*answers(each))
            await until(orders.are_sent)
        await orders.add()
        await orders.all_wait()
        with forked_workers(system.store, run_log_path, 1, PROGRAM):
            for each in orders.ids:
                if results == "after expect":
                    await orders.app.publish(*answers(each))
                await orders.check_results(each)
            await until(orders.are_resumed)
            await until(lambda: is_killed_at_each_step(run_log_path, results))  # its signal wakes tasks before it dies
    killed = kills(run_log_path)
    print(f"\n{system.kind}, results {results}: {HANDLES} handles, {sum(killed.values())} kills")


async def test_results_that_a_killed_service_has_stored_before_expect_complete_the_handle(
    system: EventSystem, run_log_path: Path
) -> None:
    """It was killed after it had stored them, and there is none while the tasks expect them."""
    orders = Orders(system)
    async with orders.running():
        with forked_workers(system.store, run_log_path, 1, PROGRAM):
            for number, each in enumerate(orders.ids, 1):
                await orders.app.publish(*answers(each))
                await until(lambda each=each: orders.are_stored(each))
                await until(lambda number=number: kills(run_log_path) == {"arrived": number})
        await orders.add()
        for each in orders.ids:
            await orders.check_results(each)
        await until(orders.are_resumed)
