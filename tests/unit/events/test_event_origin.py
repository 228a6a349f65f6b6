"""Events that tasks make: their ids derive from the task, and they take over what is known there."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App, current_task
from onthedot.events import Event
from onthedot.model.context import current_run
from onthedot.model.event_origin import EventOrigin
from onthedot.testing import TestApp

app = App("shop")
made: list[Event[Any]] = []


def placed(**changes: Any) -> Event[dict[str, int]]:
    return Event("Shop.Order.Placed", {"id": 1}, aggregate_id="1", **changes)


@app.task(max_retries=2, backoff=0)
async def fails() -> None:
    made.extend([placed(), placed(), placed(id="given")])
    raise RuntimeError


@app.task(max_retries=2, backoff=0)
def fails_in_thread() -> None:
    made.append(placed())
    raise RuntimeError


@app.task(max_retries=1, backoff=0)
async def has_steps() -> None:
    ctx = current_task()
    for number in range(2):
        await ctx.step("send", make_one)
        made.append(placed())
        if number == 1 and ctx.attempt == 1:
            raise RuntimeError


async def make_one() -> None:
    made.append(placed())


@app.task
async def handles() -> None:
    run = current_run()
    assert run is not None
    run.event_origin = EventOrigin(run.record.uuid, 0, correlation_id="cmd-7", causation_id="e0", retries=2)
    made.extend([placed(), placed(correlation_id="own", causation_id="c", retries=0)])
    made.append(placed(id="request").reply("Shop.Order.Shipped", {}))


@app.task
async def makes_one() -> None:
    await make_one()


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


def ids() -> list[str]:
    return [event.id for event in made]


def test_repeated_run_makes_the_same_ids_and_an_operators_retry_new_ones() -> None:
    with TestApp(app) as test:
        handle = fails.delay()
        test.sync.advance(1)
        first, second, third, *again = [ids()[at : at + 3] for at in range(0, 9, 3)]
        assert first == second == third
        assert len(set(first)) == 3
        assert first[2] == "given"
        made.clear()
        app.sync.retry(handle.uuid)
        test.sync.advance(1)
        assert set(ids()) & set(first) == {"given"}
        assert again == []


def test_tasks_differ_in_their_ids() -> None:
    with TestApp(app) as test:
        makes_one.delay()
        makes_one.delay()
        test.sync.advance(1)
    assert len(set(ids())) == 2


def test_sync_task_makes_the_same_ids_in_its_thread() -> None:
    with TestApp(app) as test:
        fails_in_thread.delay()
        test.sync.advance(1)
    assert len(made) == 3
    assert len(set(ids())) == 1


def test_saved_step_does_not_shift_the_ids_of_later_events() -> None:
    with TestApp(app) as test:
        has_steps.delay()
        test.sync.advance(1)
    step_1, after_1, step_2, after_2, *again = ids()
    assert len({step_1, after_1, step_2, after_2}) == 4
    assert again == [after_1, after_2]


def test_event_takes_over_what_the_run_knows() -> None:
    with TestApp(app) as test:
        handles.delay()
        test.sync.advance(1)
    taken, own, reply = made
    assert (taken.correlation_id, taken.causation_id, taken.retries) == ("cmd-7", "e0", 2)
    assert (own.correlation_id, own.causation_id, own.retries) == ("own", "c", 0)
    assert (reply.correlation_id, reply.causation_id, reply.retries) == ("cmd-7", "request", 2)


@pytest.mark.parametrize(
    ("metadata", "expected"), [({"correlation_id": "cmd-7"}, "cmd-7"), ({"correlation_id": 7}, None)]
)
def test_correlation_id_comes_from_the_metadata_of_the_task(metadata: dict[str, Any], expected: str | None) -> None:
    with TestApp(app) as test:
        makes_one.options(metadata=metadata).delay()
        test.sync.advance(1)
    (event,) = made
    assert event.correlation_id == (expected or event.id)
    assert (event.causation_id, event.retries) == (None, 0)


def test_received_event_takes_over_nothing() -> None:
    origin = EventOrigin("t", 0, correlation_id="cmd-7")
    assert origin.next_id() != EventOrigin("t", 1).next_id()
    data = placed(id="e1").to_dict() | {"correlation_id": None}
    assert Event.from_dict(data).correlation_id == "e1"
