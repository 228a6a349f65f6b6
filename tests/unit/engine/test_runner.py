"""Outcomes of runs: retries and controls, timeouts, the context."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from datetime import datetime, timedelta
from typing import Any

import pytest

from onthedot import (
    App,
    AsyncTaskHandle,
    Cancel,
    Reject,
    Retry,
    Snooze,
    TaskContext,
    TaskFailed,
    TaskNotFound,
    TaskOptions,
    TaskTimeout,
    current_task,
)
from onthedot.clock.manual import ManualClock
from tests.support.waits import every_chance, until

Script = list[BaseException | type[BaseException]]


async def has_state(handle: AsyncTaskHandle[Any], *states: str) -> bool:
    return await handle.state() in states


def scripted(app: App, script: Script, options: TaskOptions) -> tuple[Any, list[TaskContext]]:
    """A task that raises the errors of the script, one per run, then succeeds; and the contexts of its runs."""
    runs: list[TaskContext] = []

    @app.task(**options)
    async def act() -> str:
        runs.append(current_task())
        if len(runs) <= len(script):
            raise script[len(runs) - 1]
        return "done"

    return act, runs


async def play(clock: ManualClock, handle: AsyncTaskHandle[Any], runs: list[Any]) -> list[float]:
    """Advances the clock from run to run until the end; returns the seconds between them."""
    pauses = []
    while True:
        await until(lambda: has_state(handle, "scheduled", "succeeded", "failed", "cancelled"))
        info = await handle.info()
        if info.state.ended:
            return pauses
        so_far = len(runs)
        pause = info.schedule_at - clock.moment()
        pauses.append(pause.total_seconds())
        clock.advance(pause / timedelta(milliseconds=1) - 1)
        await every_chance()
        assert len(runs) == so_far, "it ran early"
        clock.advance(1)
        await until(lambda so_far=so_far: len(runs) > so_far)


THRICE: TaskOptions = {"max_retries": 3, "backoff": [1, 5]}
ENDS: dict[str, tuple[TaskOptions, Script, str, list[float], str]] = {
    # options, errors of the runs, final state, pauses between runs, text of the error
    "succeeds": ({}, [], "succeeded", [], ""),
    "no retries by default": ({}, [OSError("gone")], "failed", [], "gone"),
    "a list of pauses": (THRICE, [OSError] * 3, "succeeded", [1, 5, 5], ""),
    "retries used up": (THRICE, [OSError("gone")] * 4, "failed", [1, 5, 5], "gone"),
    "own backoff": ({"max_retries": 2, "backoff": lambda n, _: n * 10}, [OSError] * 2, "succeeded", [10, 20], ""),
    "broken backoff": ({"max_retries": 2, "backoff": lambda *_: 1 / 0}, [OSError], "failed", [], "division by zero"),
    "not in retry_on": (THRICE | {"retry_on": (OSError,)}, [ValueError("bad")], "failed", [], "bad"),
    "in retry_on": (THRICE | {"retry_on": (OSError,)}, [ConnectionError], "succeeded", [1], ""),
    "in reject_on": (THRICE | {"reject_on": (ValueError,)}, [OSError, ValueError("bad")], "failed", [1], "bad"),
    "Retry": (THRICE, [Retry], "succeeded", [1], ""),
    "Retry(after)": (THRICE, [Retry(7), Retry(timedelta(minutes=1))], "succeeded", [7, 60], ""),
    "Retry counts": ({"max_retries": 1, "backoff": [1]}, [Retry(7), OSError("gone")], "failed", [7], "gone"),
    "Retry without max_retries": ({}, [Retry(7)] * 3, "succeeded", [7, 7, 7], ""),
    "Retry more than three times": ({}, [Retry(7)] * 4, "failed", [7, 7, 7], "Retry"),
    "Retry, then an error": ({}, [Retry(7), OSError("gone")], "failed", [7], "gone"),
    "Retry with max_retries=0": ({"max_retries": 0}, [Retry(7)], "failed", [], "Retry"),
    "Retry with a reason": ({}, [Retry(7, "bank closed")] * 4, "failed", [7, 7, 7], "bank closed"),
    "Retry in no time": (THRICE, [Retry("soon")], "failed", [], "Retry(after)"),  # type: ignore[arg-type]
    "Retry beats retry_on": (THRICE | {"retry_on": (OSError,)}, [Retry], "succeeded", [1], ""),
    "Snooze does not count": ({}, [Snooze(9), Snooze(9), Snooze(9)], "succeeded", [9, 9, 9], ""),
    "Reject": (THRICE, [Reject("stolen card")], "failed", [], "stolen card"),
    "Cancel": (THRICE, [OSError, Cancel("no need")], "cancelled", [1], "no need"),
    "SystemExit": (THRICE, [SystemExit(3)], "failed", [], "3"),
    "KeyboardInterrupt": (THRICE, [KeyboardInterrupt()], "failed", [], ""),
    "its own CancelledError": (THRICE, [asyncio.CancelledError("mine")], "failed", [], "mine"),
}


@pytest.mark.parametrize(("options", "script", "state", "pauses", "words"), ENDS.values(), ids=ENDS.keys())
async def test_errors_lead_to_outcomes(
    app: App, clock: ManualClock, options: TaskOptions, script: Script, state: str, pauses: list[float], words: str
) -> None:
    act, runs = scripted(app, script, options)
    async with app.running():
        handle = await act.enqueue()
        assert await play(clock, handle, runs) == pauses
        info = await handle.info()
        assert info.state == state
        assert words in (info.error.message if info.error else info.reason)
        assert len(runs) == len(pauses) + 1
        assert await (await act.enqueue()) == "done"  # the next task is not affected


async def test_the_default_backoff_doubles_from_five_seconds(app: App, clock: ManualClock) -> None:
    act, runs = scripted(app, [OSError] * 4, {"max_retries": 4})
    async with app.running():
        pauses = await play(clock, await act.enqueue(), runs)
    for pause, nominal in zip(pauses, (5, 10, 20, 40), strict=True):
        assert 0.9 * nominal <= pause <= 1.1 * nominal


async def test_retry_has_the_history_of_earlier_runs(app: App, clock: ManualClock) -> None:
    act, runs = scripted(app, [OSError("first"), Snooze(1), OSError("second")], {"max_retries": 2, "backoff": [1]})
    async with app.running():
        handle = await act.enqueue()
        await play(clock, handle, runs)
        info = await handle.info()
    assert [run.attempt for run in runs] == [1, 2, 2, 3]
    assert [run.is_last_attempt for run in runs] == [False, False, False, True]
    assert [run.last_error and run.last_error.message for run in runs] == [None, "first", "first", "second"]
    assert len({run.fence for run in runs}) == 4
    assert {run.idempotency_key for run in runs} == {handle.uuid}
    assert (info.attempt, info.retries, info.error) == (3, 2, None)
    assert [error.message for error in info.errors] == ["first", "second"]


@pytest.mark.parametrize(
    ("control", "state"), [(Snooze(9), "scheduled"), (Reject("r"), "failed"), (Cancel(), "cancelled")]
)
async def test_except_exception_does_not_catch_a_control(app: App, control: BaseException, state: str) -> None:
    @app.task
    async def careful() -> None:
        try:
            raise control
        except Exception:
            pytest.fail("caught")

    async with app.running():
        handle = await careful.enqueue()
        await until(lambda: has_state(handle, state))


async def test_failures_are_logged_once_when_final(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    act, runs = scripted(app, [OSError("gone")] * 3, {"max_retries": 2, "backoff": [1, 2]})
    async with app.running():
        handle = await act.enqueue()
        await play(clock, handle, runs)
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    for each, count in zip(warned, ("(1/2)", "(2/2)"), strict=True):
        assert each.getMessage().startswith(f"[retry] task {handle.uuid} from act again ")
        assert count in each.getMessage()
    (failed,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert failed.getMessage() == f"[fail] task {handle.uuid} from act: gone"
    assert failed.exc_info is not None
    assert (failed.name, failed.__dict__["uuid"], failed.__dict__["attempt"]) == ("onthedot.task", handle.uuid, 3)


# -- timeouts


async def test_timeout_cancels_the_run_and_counts_as_failure(app: App, clock: ManualClock) -> None:
    began: list[int] = []
    cleaned: list[datetime | None] = []

    @app.task(timeout=30, max_retries=1, backoff=[60])
    async def hang() -> None:
        began.append(current_task().attempt)
        try:
            await asyncio.sleep(1000)
        finally:
            cleaned.append(current_task().deadline)

    async with app.running():
        handle = await hang.enqueue()
        deadline = clock.moment() + timedelta(seconds=30)
        await until(lambda: began == [1])
        clock.advance(29_999)
        await every_chance()
        assert cleaned == []
        clock.advance(1)
        await until(lambda: has_state(handle, "scheduled"))
        assert cleaned == [deadline]
        clock.advance(60_000)
        await until(lambda: began == [1, 2])
        clock.advance(30_000)
        error = await handle.exception()
    assert isinstance(error, TaskTimeout)
    assert isinstance(error, TaskFailed)
    assert (error.message, error.attempt) == ("no result after 30 s", 2)


async def test_run_that_ends_in_time_leaves_no_timer(clock: ManualClock) -> None:
    app = App("quick", store="memory://", task_timeout=30)

    @app.task
    async def deadline() -> bool:
        return current_task().deadline == clock.moment() + timedelta(seconds=30)

    with app.override(clock=clock):
        async with app.running():
            assert await (await deadline.enqueue()) is True
            clock.advance(60_000)
        assert clock.next_timer() is None


async def test_cancelled_task_may_return_a_result(app: App) -> None:
    @app.task
    async def polite() -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return "as far as I came"
        return "the whole way"

    async with app.running():
        handle = await polite.enqueue()
        await until(lambda: has_state(handle, "running"))
        await handle.cancel()
        assert await handle == "as far as I came"


# -- the context


async def test_context_describes_the_task(app: App, clock: ManualClock) -> None:
    @app.task(tags=("eu",), max_retries=2)
    async def look(x: int, y: str = "why") -> None:
        seen.append(current_task())

    seen: list[TaskContext] = []
    due = clock.moment() + timedelta(seconds=5, microseconds=17)
    async with app.running():
        handle = await look.options(at=due, metadata={"trace": "t1"}).enqueue(3)
        clock.advance(6_000)
        await handle
        worker = (await handle.info()).worker
    (ctx,) = seen
    assert (ctx.uuid, ctx.source, dict(ctx.args)) == (handle.uuid, "look", {"x": 3})
    assert (ctx.attempt, ctx.is_last_attempt, ctx.last_error, ctx.deadline) == (1, False, None, None)
    assert (ctx.tags, dict(ctx.metadata), ctx.scheduled_for) == (("eu",), {"trace": "t1"}, due)
    assert ctx.logger.extra == {"uuid": handle.uuid, "source": "look", "attempt": 1, "worker": worker}
    assert not ctx.cancelled()
    ctx.raise_if_cancelled()


def test_there_is_no_current_task_outside_of_one() -> None:
    with pytest.raises(RuntimeError, match="outside of a running task"):
        current_task()


async def test_log_lines_of_a_task_carry_its_fields(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    @app.task
    async def talk() -> None:
        current_task().logger.info("hello")

    async with app.running():
        handle = await talk.enqueue()
        await handle
        worker = (await handle.info()).worker
    fields_by_line = {each.getMessage().partition(" in ")[0]: each.__dict__ for each in caplog.records}
    for line in ("hello", f"[done] task {handle.uuid} from talk"):
        fields = {name: fields_by_line[line].get(name) for name in ("name", "uuid", "source", "attempt", "worker")}
        assert fields == {
            "name": "onthedot.task", "uuid": handle.uuid, "source": "talk", "attempt": 1, "worker": worker,
        }  # fmt: skip


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_context_variables_of_a_task_are_not_visible_to_the_next(app: App, where: str) -> None:
    mark = contextvars.ContextVar("mark", default="clean")

    def in_thread(text: str) -> str:
        before = mark.get()
        mark.set(text)
        return before

    async def on_loop(text: str) -> str:
        return in_thread(text)

    leave: Any = app.task(in_thread if where == "thread" else on_loop)
    async with app.running():
        handles = await leave.enqueue_many([{"text": str(n)} for n in range(20)])
        assert {await handle for handle in handles} == {"clean"}


async def test_progress_is_visible_during_and_after_the_run(app: App) -> None:
    go_on = asyncio.Event()

    @app.task
    async def work() -> None:
        for done in range(1, 4):
            current_task().progress(done, 3)
        await go_on.wait()
        current_task().progress(99.5)

    async with app.running():
        handle = await work.enqueue()

        async def progressed() -> bool:
            return (await handle.info()).progress == (3, 3)

        await until(progressed)
        go_on.set()
        await handle
        assert (await handle.info()).progress == (99.5, 100)


@pytest.mark.parametrize(
    ("script", "state", "children"),
    [
        ([], "succeeded", 2),
        ([OSError], "succeeded", 2),
        ([OSError, OSError], "failed", 0),
        ([Cancel()], "cancelled", 0),
    ],
)
async def test_spawned_tasks_are_added_if_and_when_the_parent_succeeds(
    app: App, clock: ManualClock, script: Script, state: str, children: int
) -> None:
    spawned: list[str] = []
    ran: list[int] = []
    runs: list[int] = []

    @app.task
    async def child(number: int) -> None:
        ran.append(number)

    @app.task(max_retries=1, backoff=[1])
    async def parent() -> None:
        runs.append(1)
        spawned[:] = [current_task().spawn(child.s(n)).uuid for n in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TaskNotFound):  # not before the parent has settled
            await child.ahandle(spawned[0]).info()
        if len(runs) <= len(script):
            raise script[len(runs) - 1]

    async with app.running():
        handle = await parent.enqueue()
        await play(clock, handle, runs)
        assert await handle.state() == state
        await until(lambda: len(ran) >= children)
        assert len((await app.find(source="child")).tasks) == len(ran) == children
        if children:
            assert [await child.ahandle(uuid) for uuid in spawned] == [None] * 2
