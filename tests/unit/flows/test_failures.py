"""Failures in flows: what ends, what goes on, and what runs again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from onthedot import (
    App,
    Cancel,
    FlowHandle,
    Reject,
    TaskCancelled,
    TaskFailed,
    TaskFailure,
    TaskState,
    current_task,
    group,
)
from onthedot.client.client import StoreClient
from onthedot.stores.contract import ClaimRequest, SlotPool
from tests.support.app_stores import AppStore
from tests.support.waits import LONG, SOON, wait_until

BROKEN = 42


class Tasks:
    """The tasks of these tests, declared on one app."""

    def __init__(self, app: App) -> None:
        self.runs: list[Any] = []
        self.broken = True
        self.broken_numbers = {BROKEN}

        @app.task
        async def check(number: int) -> int:
            self.runs.append(number)
            if number in self.broken_numbers and self.broken:
                raise ValueError(f"no {number}")
            return number

        @app.task
        async def collect(numbers: list[int | TaskFailure]) -> list[int | TaskFailure]:
            self.runs.append("collect")
            return numbers

        @app.task
        async def count(numbers: list[int]) -> int:
            self.runs.append("count")
            return len(numbers)

        @app.task
        async def show(value: object) -> str:
            return type(value).__name__

        @app.task
        async def alert(failure: TaskFailure) -> None:
            self.runs.append(failure)

        @app.task
        async def clean(what: str) -> None:
            self.runs.append(f"clean {what}")

        self.check = check
        self.collect = collect
        self.count = count
        self.show = show
        self.alert = alert
        self.clean = clean


@pytest.fixture
def tasks(app: App) -> Tasks:
    return Tasks(app)


def states(handle: FlowHandle[Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for info in handle.tasks():
        found[info.state] = found.get(info.state, 0) + 1
    return found


def test_failed_member_ends_what_follows_it_and_nothing_else(app: App, tasks: Tasks) -> None:
    with app.background():
        handle = (group(tasks.check.s(number) for number in range(98)) | tasks.count | tasks.show).delay()
        with pytest.raises(TaskFailed, match="no 42") as caught:
            handle.result(timeout=SOON)
        assert app.handle(caught.value.task).info().args == {"number": BROKEN}
        wait_until(lambda: states(handle) == {"succeeded": 97, "failed": 1, "cancelled": 2})
        last = handle.info()
        assert last.reason.startswith(f"upstream: check {caught.value.task} failed: ValueError: no 42")
        assert handle.progress().failed == 3
    assert "count" not in tasks.runs


def test_collected_failure_takes_the_place_of_its_result(app: App, tasks: Tasks) -> None:
    with app.background():
        members = group((tasks.check.s(number) for number in range(100)), on_error="collect")
        handle = (members | tasks.collect | tasks.show).delay()
        assert handle.result(timeout=SOON) == "list"
        values = (members | tasks.collect).delay().result(timeout=SOON)
        failure = values.pop(BROKEN)
    assert values == [number for number in range(100) if number != BROKEN]
    assert isinstance(failure, TaskFailure)
    shown = (failure.source, failure.state, failure.error_type, failure.message, failure.attempt)
    assert shown == ("check", "failed", "ValueError", "no 42", 1)


def test_collecting_group_meets_other_predecessors_through_a_join(app: App, tasks: Tasks) -> None:
    @app.task
    async def both(values: list[int | TaskFailure], other: int) -> str:
        return f"{len(values)} {other}"

    with app.background():
        members = group((tasks.check.s(number) for number in (1, BROKEN)), on_error="collect")
        assert both.s(members.result, tasks.check.s(7).result).delay().result(timeout=SOON) == "2 7"
        failing = both.s(members.result, tasks.check.s(BROKEN).result).delay()
        with pytest.raises(TaskFailed, match="no 42"):
            failing.result(timeout=SOON)
        alone = members.delay()
        assert isinstance(alone.result(timeout=SOON)[1], TaskFailure)
        assert alone.progress().total == 2


def test_stop_cancels_members_that_have_not_started(flow_store: AppStore) -> None:
    app = App(flow_store.name, store=flow_store.url, concurrency=1, stop_timeout=0)
    tasks = Tasks(app)
    try:
        with app.background():
            calls = [tasks.check.s(BROKEN), *(tasks.check.options(after=3600).s(number) for number in range(20))]
            handle = (group(calls, on_error="stop") | tasks.count).delay()
            with pytest.raises(TaskFailed, match="no 42"):
                handle.result(timeout=SOON)
            wait_until(lambda: states(handle) == {"failed": 1, "cancelled": 21})
    finally:
        app.shutdown()
    assert tasks.runs == [BROKEN]


def test_handlers_run_after_the_end_of_the_flow(app: App, tasks: Tasks) -> None:
    with app.background():
        good = tasks.check.s(1).on_failure(tasks.alert).always(tasks.clean.s("good"))
        assert (good | tasks.show).delay().result(timeout=SOON) == "int"
        wait_until(lambda: "clean good" in tasks.runs)
        bad = (tasks.check.s(BROKEN) | tasks.show).on_failure(tasks.alert).always(tasks.clean.s("bad")).delay()
        with pytest.raises(TaskFailed):
            bad.result(timeout=SOON)
        wait_until(lambda: "clean bad" in tasks.runs and any(isinstance(run, TaskFailure) for run in tasks.runs))
        assert bad.progress().total == 2
        failures = [run for run in tasks.runs if isinstance(run, TaskFailure)]
        assert [failure.message for failure in failures] == ["no 42"]
        wait_until(lambda: not app.sync.find(source="alert", state="cancelled"))  # the one that was not needed
        assert len(app.sync.find(source="alert")) == 1


@pytest.mark.parametrize("end", ["raise", "reject", "cancel", "cancelled", "expires", "timeout", "keep"])
def test_every_way_to_end_a_child_ends_the_wait(app: App, tasks: Tasks, end: str) -> None:
    @app.task(timeout=0.05 if end == "timeout" else None, keep=0 if end == "keep" else 3600)
    async def child(number: int) -> int:
        match end:
            case "raise":
                raise ValueError
            case "reject":
                raise Reject("no")
            case "cancel":
                raise Cancel("no")
            case "timeout":
                await asyncio.sleep(LONG)
            case "cancelled":
                await asyncio.sleep(LONG)
            case _:
                pass
        return number

    call = child.options(expires=0.001).s(1) if end == "expires" else child.s(1)
    handle = (group([call, tasks.check.s(2)], on_error="collect") | tasks.collect).delay()
    if end == "expires":
        time.sleep(0.01)  # its time to expire has passed before a worker exists
    with app.background():
        if end == "cancelled":
            wait_until(lambda: app.sync.find(source="child", state="running"))
            app.sync.cancel(next(iter(app.sync.find(source="child"))).uuid)
        values = handle.result(timeout=SOON)
    assert values[1] == 2
    if end == "keep":
        assert values[0] == 1
    else:
        assert isinstance(values[0], TaskFailure)
        assert values[0].source == "child"


def test_unknown_source_ends_the_wait(tasks: Tasks, app: App, flow_store: AppStore) -> None:
    if not flow_store.url.startswith("memory"):
        pytest.skip("in a store that is shared, another process may know the source")
    with app.background():
        handle = (group([app.named("elsewhere").s(), tasks.check.s(2)], on_error="collect") | tasks.collect).delay()
        values = handle.result(timeout=SOON)
    assert isinstance(values[0], TaskFailure)
    assert values[0].error_type == "UnknownSource"


def test_child_that_kills_its_worker_ends_the_wait(app: App, tasks: Tasks) -> None:
    @app.task(executor="process", max_crashes=1)
    def die(number: int) -> int:
        os._exit(number)

    with app.background():
        handle = (group([die.s(3)], on_error="collect") | tasks.collect).delay()
        (value,) = handle.result(timeout=SOON * 2)
    assert isinstance(value, TaskFailure)


def test_child_over_which_workers_died_three_times_ends_the_wait(app: App, tasks: Tasks) -> None:
    @app.task
    async def poison(number: int) -> int:
        return number

    handle = (group([poison.s(1), tasks.check.s(2)], on_error="collect") | tasks.collect).delay()
    for number in range(3):

        async def crash(client: StoreClient, name: str = f"dead-{number}") -> int:
            await client.store.heartbeat(name, b'{"format": 2}', 60_000)
            pools = [SlotPool(1, {"poison": 1})]
            turn = await client.store.turn(name, [], ClaimRequest(1, pools, max_suspects=1))
            await client.store.close_session(name, crashed=True)
            return len(turn.claim.tasks) if turn.claim is not None else 0

        assert app.runtime.portal.run_sync(crash) == 1
    with app.background():
        values = handle.result(timeout=SOON)
    assert isinstance(values[0], TaskFailure)
    assert "its worker died 3 times" in values[0].message


def test_retry_of_a_member_runs_what_was_cancelled_because_of_it(app: App, tasks: Tasks) -> None:
    with app.background():
        flow = group(tasks.check.s(number) for number in (1, BROKEN)) | tasks.count | tasks.show
        handle = flow.delay()
        with pytest.raises(TaskFailed) as caught:
            handle.result(timeout=SOON)
        wait_until(lambda: states(handle) == {"succeeded": 1, "failed": 1, "cancelled": 2})
        tasks.broken = False
        assert app.handle(caught.value.task).retry()
        assert handle.result(timeout=SOON) == "int"
        assert states(handle) == {"succeeded": 4}
    assert tasks.runs[2:] == [BROKEN, "count"]


def test_flow_goes_on_when_the_last_of_its_failed_members_is_retried(app: App, tasks: Tasks) -> None:
    with app.background():
        checks = [tasks.check.s(BROKEN), tasks.check.s(BROKEN), tasks.check.s(1)]
        handle = (group(checks) | tasks.count | tasks.show).delay()
        with pytest.raises(TaskFailed):
            handle.result(timeout=SOON)
        wait_until(lambda: states(handle) == {"succeeded": 1, "failed": 2, "cancelled": 2})
        tasks.broken = False
        first, second = (info.uuid for info in handle.tasks(state="failed"))
        assert app.handle(first).retry()
        wait_until(lambda: app.handle(first).state() == "succeeded")
        assert states(handle) == {"succeeded": 2, "failed": 1, "cancelled": 2}
        assert app.handle(second).retry()
        assert handle.result(timeout=SOON) == "int"
    assert tasks.runs.count("count") == 1


def test_retry_of_a_member_of_a_spawned_flow_runs_its_last_task(app: App, tasks: Tasks) -> None:
    spawned: list[FlowHandle[str]] = []

    @app.task
    async def outer() -> None:
        spawned.append(current_task().spawn(tasks.check.s(BROKEN) | tasks.show))

    with app.background():
        (tasks.check.s(1) | outer.s()).delay().result(timeout=SOON)
        (inner,) = spawned
        wait_until(lambda: inner.state() == "cancelled")
        tasks.broken = False
        (failed,) = inner.tasks(state="failed")
        assert app.handle(failed.uuid).retry()
        assert inner.result(timeout=SOON) == "int"


def test_retry_of_a_flow_runs_collected_failures_again_and_nothing_else(app: App, tasks: Tasks) -> None:
    with app.background():
        members = group((tasks.check.s(number) for number in (1, BROKEN)), on_error="collect")
        handle = (members | tasks.collect).delay()
        assert isinstance(handle.result(timeout=SOON)[1], TaskFailure)
        tasks.broken = False
        assert handle.retry() == 1
        wait_until(lambda: states(handle) == {"succeeded": 3})
        assert isinstance(handle.result(timeout=SOON)[1], TaskFailure)
        assert handle.progress().failed == 0
    assert tasks.runs[2:] == ["collect", BROKEN]


def test_retry_runs_failed_members_and_then_what_waited_for_them(app: App, tasks: Tasks) -> None:
    with app.background():
        handle = (group(tasks.check.s(number) for number in range(40, 45)) | tasks.count | tasks.show).delay()
        with pytest.raises(TaskFailed):
            handle.result(timeout=SOON)
        wait_until(lambda: handle.progress().done == 7)
        tasks.broken = False
        assert handle.retry() == 3
        assert handle.result(timeout=SOON) == "int"
        assert handle.progress().done == handle.progress().total == 7
        assert handle.progress().failed == 0
        attempts = {info.args["number"]: info.attempt for info in handle.tasks() if info.source == "check"}
    assert tasks.runs.count("count") == 1
    assert tasks.runs.count(BROKEN) == 2
    assert attempts == {40: 1, 41: 1, BROKEN: 2, 43: 1, 44: 1}


def test_retry_of_three_failed_of_a_hundred_runs_these_and_then_the_last_task_once(app: App, tasks: Tasks) -> None:
    tasks.broken_numbers = {7, BROKEN, 77}
    with app.background():
        handle = (group(tasks.check.s(number) for number in range(99)) | tasks.count).delay()
        with pytest.raises(TaskFailed, match=r"no \d+"):
            handle.result(timeout=SOON)
        wait_until(lambda: handle.progress().done == 100)
        assert handle.progress().failed == 4, "the last task was cancelled"
        tasks.broken = False
        assert handle.retry() == 4
        assert handle.result(timeout=SOON) == 99
        progress = handle.progress()
        attempts = {info.args["number"]: info.attempt for info in handle.tasks() if info.source == "check"}
    assert (progress.done, progress.failed, progress.total) == (100, 0, 100)
    assert tasks.runs.count("count") == 1
    assert {number: attempt for number, attempt in attempts.items() if attempt != 1} == {7: 2, BROKEN: 2, 77: 2}
    assert sorted(tasks.runs[99:-1]) == [7, BROKEN, 77]


def test_cancel_of_a_flow_reaches_all_that_its_members_have_added(app: App, tasks: Tasks) -> None:
    @app.task
    async def spread(number: int) -> int:
        current_task().spawn(tasks.check.options(after=3600).s(number))
        current_task().spawn(group([tasks.check.options(after=3600).s(number)]) | tasks.count)
        return number

    @app.task
    async def hang(number: int) -> int:
        await asyncio.sleep(LONG)
        return number

    with app.background():
        calls = [*(spread.s(number) for number in range(5)), *(hang.s(number) for number in range(5))]
        handle = (group(calls) | tasks.count).always(tasks.clean.s("all")).delay()
        wait_until(lambda: handle.progress().done == 5 and len(app.sync.find(source="hang", state="running")) == 5)
        lived = handle.cancel("enough")
        assert lived >= 6
        assert _living(app, "check") + _living(app, "hang") + _living(app, "count") == 0
        with pytest.raises(TaskCancelled, match="enough"):
            handle.result(timeout=SOON)
        wait_until(lambda: "clean all" in tasks.runs)


def _living(app: App, source: str) -> int:
    return sum(not info.state.ended for info in app.sync.find(source=source, limit=1000))


def test_result_that_could_not_be_stored_fails_what_needs_it(app: App, tasks: Tasks) -> None:
    @app.task
    async def unstorable() -> object:
        return object()

    with app.background():
        handle = (unstorable.s() | tasks.show).delay()
        with pytest.raises(TaskFailed, match=r"the result of unstorable .* could not be stored"):
            handle.result(timeout=SOON)


def test_result_of_another_type_fails_what_needs_it(app: App, tasks: Tasks) -> None:
    make: Callable[..., Any] = tasks.count.s
    with app.background():
        handle = make([tasks.show.s(1).result]).delay()
        with pytest.raises(TaskFailed, match="numbers"):
            handle.result(timeout=SOON)
    assert handle.uuid
    assert TaskState.FAILED == "failed"


def test_stop_is_not_queued_behind_members(flow_store: AppStore) -> None:
    """The slot of the failed member is taken by the next one in the turn that settles the failure."""
    app = App(flow_store.name, store=flow_store.url, concurrency=1, stop_timeout=0)
    tasks = Tasks(app)

    @app.task
    async def hang(number: int) -> int:
        await asyncio.sleep(LONG)
        return number

    try:
        with app.background():
            calls = [tasks.check.s(BROKEN), *(hang.s(number) for number in range(20))]
            handle = (group(calls, on_error="stop") | tasks.count).delay()
            wait_until(lambda: states(handle).get("failed"))
            wait_until(lambda: len(app.sync.find(source="hang", state="cancelled")) >= 19, timeout=LONG / 2)
            assert len(app.sync.find(source="hang", state="running")) <= 1
    finally:
        app.shutdown()
