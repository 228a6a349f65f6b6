"""The callback service dies after storing arrivals, after completing a handle, and after signalling: one wake-up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onthedot import App, AsyncTaskHandle
from onthedot.events import Event
from onthedot.model.component_names import CALLBACK
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


async def test_handle_completes_once_although_the_service_is_killed_after_each_of_its_steps(
    system: EventSystem, run_log_path: Path
) -> None:
    """The worker runs here, without a callback service: the only one is in the processes that die."""
    app: App[Any] = App(
        system.name, store=system.store, events=system.events(results=(CREATED, FAILED)), stop_timeout=5
    )
    ended: Counter[str] = Counter()

    @app.task
    async def order(correlation_id: str) -> list[str]:
        handle = await app.expect({(CREATED, FAILED): PARTS}, correlation_id=correlation_id, timeout=300)
        events = await handle.wait()
        ended[correlation_id] += 1
        return sorted(event.id for event in events)

    ids = [f"{system.name}-c{number}" for number in range(HANDLES)]
    with app.runtime.override(replace(app.runtime.config, without=frozenset({CALLBACK}))):
        async with app.running():
            orders = {each: await order.enqueue(each) for each in ids}
            for handle in orders.values():
                await until(lambda handle=handle: is_waiting(handle))
            with forked_workers(system.store, run_log_path, 1, PROGRAM):
                for each in ids:
                    await app.publish(*answers(each))
                    found = await orders[each].result(90)
                    assert found == [f"{each}-e{number}" for number in range(PARTS)]

                async def all_are_resumed() -> bool:
                    return {await app.resume_handle(each).status() for each in ids} == {"resumed"}

                await until(all_are_resumed)
            assert await app.operations.failures() == []
    app.runtime.close()
    kills = Counter(file.suffixes[-2].removeprefix(".") for file in run_log_path.parent.glob("run_log.*.*"))
    assert kills == dict.fromkeys(STEPS, HANDLES)
    assert ended == dict.fromkeys(ids, 1)
    print(f"\n{system.kind}: {HANDLES} handles, {sum(kills.values())} kills")
