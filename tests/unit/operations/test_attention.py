"""Conditions that an operator should act on, and the recorded life of a task."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from onthedot import App, TaskFailed
from onthedot.clock.manual import ManualClock
from onthedot.codec.task_failure import TaskFailure
from onthedot.model.task import TaskInfo, TaskState
from onthedot.operations.attention import AttentionItem
from onthedot.operations.timeline import timeline
from tests.support.waits import SOON, until

START = datetime(2026, 11, 16, 9, tzinfo=UTC)


async def items(app: App[Any]) -> list[AttentionItem]:
    client = app.runtime.portal.connected()
    assert client is not None
    return await client.operations.attention()


async def test_nothing_needs_attention_in_an_empty_store(app: App[Any]) -> None:
    async with app:
        assert await items(app) == []


async def test_ready_task_without_a_worker_and_a_long_pause_need_attention(
    app: App[Any], send: Any, clock: ManualClock
) -> None:
    async with app:
        await send.enqueue("ann")
        assert await items(app) == []
        clock.advance(61_000)
        assert [(item.kind, item.size, item.source) for item in await items(app)] == [("no_worker", 1, "send")]
        await app.operations.pause("send", reason="vendor down")
        clock.advance(3_601_000)
        found = await items(app)
        assert [item.kind for item in found] == ["no_worker", "paused"]
        assert found[1].text == "send is paused, and 1 task is ready: vendor down"
        assert found[1].action == ("resume", "POST", "/sources/send/resume")


class Meeting:
    """Calls that are answered when all of them have begun."""

    def __init__(self, store: Any, names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.missing = set(names)
        self._all_have_begun = asyncio.Event()
        for name in names:
            monkeypatch.setattr(store, name, partial(self._call, name, getattr(store, name)))

    async def _call(self, name: str, call: Any, *arguments: Any) -> Any:
        self.missing.discard(name)
        if not self.missing:
            self._all_have_begun.set()
        async with asyncio.timeout(SOON):
            await self._all_have_begun.wait()
        return await call(*arguments)


@pytest.mark.parametrize("names", [("tally", "limits", "sessions"), ("schedules", "find", "outbox_state")])
async def test_reads_that_do_not_depend_on_each_other_go_on_at_once(
    app: App[Any], send: Any, monkeypatch: pytest.MonkeyPatch, names: Sequence[str]
) -> None:
    """Each of them is a round trip to the server of the store."""
    async with app:
        await send.enqueue("ann")
        meeting = Meeting(app.runtime.store, names, monkeypatch)
        assert await items(app) == []
        assert not meeting.missing


async def test_failures_of_the_last_hour_are_grouped() -> None:
    app: App[Any] = App("shop", store="memory://", stop_timeout=0)

    @app.task
    async def fail(number: int) -> None:
        raise ValueError(f"no order {number}")

    async with app.running():
        handles = [await fail.enqueue(number) for number in range(3)]
        for handle in handles:
            with pytest.raises(TaskFailed):
                await handle.result(SOON)

        async def is_counted() -> bool:
            return [item.size for item in await items(app)] == [3]

        await until(is_counted)
        (item,) = await items(app)
        assert (item.kind, item.text) == ("failures", "3× ValueError: no order …")


def info(**fields: Any) -> TaskInfo:
    given: dict[str, Any] = {
        "uuid": "u1", "source": "send", "state": TaskState.SUCCEEDED, "args": {}, "priority": 5, "attempt": 1,
        "retries": 0, "crashes": 0, "added_at": START, "schedule_at": START,
    }  # fmt: skip
    return TaskInfo(**given | fields)


def seconds(task: TaskInfo) -> list[tuple[str, float, float | None, int]]:
    return [
        (
            each.kind,
            (each.begin - START).total_seconds(),
            None if each.end is None else (each.end - START).total_seconds(),
            each.attempt,
        )
        for each in timeline(task)
    ]


def at(number: float) -> datetime:
    return START + timedelta(seconds=number)


def test_timeline_of_a_task_that_succeeded_at_once() -> None:
    task = info(started_at=at(2), ended_at=at(5), duration=timedelta(seconds=3))
    assert seconds(task) == [("pending", 0, 2, 1), ("running", 2, 5, 1)]


def test_timeline_of_a_scheduled_task() -> None:
    assert seconds(info(state=TaskState.SCHEDULED, schedule_at=at(60))) == [("scheduled", 0, None, 1)]


def test_timeline_has_every_attempt_with_its_times() -> None:
    errors = (
        TaskFailure("OSError", "x", attempt=1, started_at=at(1), ended_at=at(2), worker="w1"),
        TaskFailure("OSError", "x", attempt=2, started_at=at(10), ended_at=at(12), worker="w2"),
    )
    task = info(attempt=3, retries=2, errors=errors, started_at=at(20), ended_at=at(21), duration=timedelta(seconds=1))
    assert seconds(task) == [
        ("pending", 0, 1, 1), ("running", 1, 2, 1), ("backoff", 2, 10, 2), ("running", 10, 12, 2),
        ("backoff", 12, 20, 3), ("running", 20, 21, 3),
    ]  # fmt: skip


def test_timeline_ends_with_what_goes_on() -> None:
    assert seconds(info(state=TaskState.READY)) == [("pending", 0, None, 1)]
    assert seconds(info(state=TaskState.RUNNING, started_at=at(1)))[-1] == ("running", 1, None, 1)
    assert seconds(info(state=TaskState.WAITING))[-1] == ("waiting", 0, None, 1)
