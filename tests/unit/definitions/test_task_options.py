"""Every option of a task takes effect or is refused; none is silently ignored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from onthedot import (
    App,
    ArgumentError,
    BaseTaskConsumer,
    DuplicateTask,
    Scheduler,
    StoreFull,
    Task,
    TaskConsumerRegistry,
    TaskHandle,
    TaskState,
)
from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Record
from tests.support.waits import until

HOUR = 3_600_000
DAY = 24 * HOUR


def record_of(app: App, handle: TaskHandle[Any]) -> Record:
    (record,) = app.runtime.portal.run_sync(lambda client: client.store.get([handle.uuid]))
    assert record is not None
    return record


# -- of one call


async def test_call_option_none_removes_expiry(app: App, clock: ManualClock) -> None:
    task = app.task(expires=5)(plain)
    forever = task.options(expires=None).delay("a")
    soon = task.delay("a")
    clock.advance(6_000)
    async with app.running():
        await until(lambda: soon.done() and forever.done())
    assert (forever.state(), soon.state()) == (TaskState.SUCCEEDED, TaskState.CANCELLED)


def plain(key: str, number: int = 1) -> None: ...


def test_the_same_uuid_again_is_no_conflict(app: App) -> None:
    task = app.task(unique="{key}", on_conflict="error")(plain)
    first = task.delay("x")
    again = task.options(uuid=first.uuid).delay("x")
    assert (again.uuid, again.added) == (first.uuid, False)
    with pytest.raises(DuplicateTask, match=first.uuid):
        task.delay("x")


@pytest.mark.parametrize("what", ["label", "unique"])
def test_template_that_does_not_fit_the_call_is_refused(app: App, what: str) -> None:
    options: Any = {what: "{key.name:>5}"}
    task = app.task(**options)(plain)
    with pytest.raises(ArgumentError, match=f"plain: {what}='{{key.name:>5}}' does not fit .* 'name'"):
        task.delay("x")
    assert app.sync.find().tasks == ()


def test_unique_true_is_refused_without_the_code(app: App) -> None:
    elsewhere = app.named("elsewhere")
    with pytest.raises(ArgumentError, match=r"elsewhere.options\(unique=True\): which arguments have defaults"):
        elsewhere.options(unique=True).delay(key="x")
    first, second = (elsewhere.options(unique="mine").delay(key="x") for _ in range(2))
    assert (first.added, second.added) == (True, False)
    assert elsewhere.options(unique=False).delay(key="x").added


# -- of a consumer


class Email(BaseTaskConsumer):
    name = "email"
    unique = "{to}"
    on_conflict = "error"
    label = "to {to}"
    tags = ("mail",)
    priority = "high"
    expires = 60

    async def consume(self, task: Task) -> None: ...


def check_email(app_or_scheduler: Any, handle: TaskHandle[Any]) -> None:
    info = handle.info()
    assert (info.unique, info.label, info.tags, info.priority) == ("ann", "to ann", ("mail",), 10)
    (record,) = app_or_scheduler.runtime.portal.run_sync(lambda client: client.store.get([handle.uuid]))
    assert record.policy.expires == 60_000


async def test_options_of_a_consumer_apply_to_its_tasks() -> None:
    registry = TaskConsumerRegistry()
    registry.register(Email())
    scheduler = Scheduler(registry=registry)
    check_email(scheduler, scheduler.add_task(Email().produce({"to": "ann"})))
    with pytest.raises(DuplicateTask, match="email: a task with unique key 'ann' is alive"):
        scheduler.add_task(Email().produce({"to": "ann"}))
    with pytest.raises(DuplicateTask):
        await scheduler.add(Email().produce({"to": "ann"}))
    with pytest.raises(ArgumentError, match=r"email: unique='\{to\}' needs 'to'"):
        scheduler.add_task(Email().produce({"whom": "ann"}))


def test_options_of_a_consumer_apply_in_an_app(app: App) -> None:
    app.register(Email())
    check_email(app, app.named("email").delay(to="ann"))
    with pytest.raises(DuplicateTask):
        app.named("email").delay(to="ann")
    other = app.named("email").options(unique=None, label="mine", tags=["x"], priority=1).delay(to="ann").info()
    assert (other.unique, other.label, other.tags, other.priority) == (None, "mine", ("x",), 1)


# -- labels, tags, metadata


def test_tasks_are_found_by_tag_and_show_their_metadata(app: App) -> None:
    task = app.task(tags=("eu", "slow"), label="for {key}")(plain)
    eu = task.delay("a")
    us = task.options(tags=["us"], metadata={"trace": "4f", "at": (1, 2)}).delay("b")
    assert [info.uuid for info in app.sync.find(tag="eu")] == [eu.uuid]
    assert [info.uuid for info in app.sync.find(tag="us")] == [us.uuid]
    assert [info.uuid for info in app.sync.find(tag="slow", source="plain")] == [eu.uuid]
    assert app.sync.find(tag="e").tasks == ()
    assert (us.info().metadata, us.info().label) == ({"trace": "4f", "at": (1, 2)}, "for b")


def test_wrong_filter_is_refused_and_none_is_no_filter(app: App) -> None:
    app.task(plain).delay("a")
    find: Any = app.sync.find
    with pytest.raises(ArgumentError, match=r"no filter 'tags'; there are state, source, tag, since"):
        find(tags="eu")
    with pytest.raises(ArgumentError, match="no such state; there are scheduled, ready"):
        find(state="done")
    for wrong in ("1h", 3600, timedelta(hours=1)):
        with pytest.raises(ArgumentError, match=r"find\(since=.*\): a time is an aware datetime, as in since="):
            find(since=wrong)
    assert len(find(since=None, until=None)) == 1
    for wrong in (-1, "5", 2.5, True):
        with pytest.raises(ArgumentError, match=r"find\(limit=.*\): a limit is a whole number from 0"):
            find(limit=wrong)
    assert len(find(state=None)) == len(find(state=TaskState.READY)) == 1


def test_wrong_time_or_limit_of_other_operations_is_refused(app: App) -> None:
    sync: Any = app.sync
    with pytest.raises(ArgumentError, match=r"failures\(since='1h'\): a time is an aware datetime"):
        sync.failures(since="1h")
    with pytest.raises(ArgumentError, match=r"series\(until='1h'\): a time is an aware datetime"):
        sync.series("depth", until="1h")
    with pytest.raises(ArgumentError, match=r"purge\(limit=-1\): a limit is a whole number from 0"):
        sync.purge(limit=-1)


# -- how many may wait


def test_max_pending_of_a_source_is_not_exceeded(app: App) -> None:
    task = app.task(max_pending=3)(plain)
    other = app.task(name="other")(plain)
    task.delay("a")
    task.options(after=3600).delay("b")  # waits, too
    with pytest.raises(StoreFull, match=r"plain: 2 tasks wait already and max_pending is 3: none of 2 was added"):
        task.delay_many([{"key": "c"}] * 2)
    last = task.delay("c")
    with pytest.raises(StoreFull, match="plain: 3 tasks wait already and max_pending is 3: nothing was added"):
        task.delay("d")
    other.delay_many([{"key": "x"}] * 10)
    assert len(app.sync.find(source="plain")) == 3
    last.cancel()
    assert task.delay("d").added


async def test_running_tasks_do_not_count_as_pending(app: App) -> None:
    task = app.task(max_pending=1)(plain)
    async with app.running():
        for _ in range(5):
            await (await task.enqueue("a"))


async def test_max_pending_of_an_app_and_of_its_defaults(clock: ManualClock) -> None:
    app = App("bounded", store="memory://", max_pending=4, defaults={"max_pending": 3})
    with app.override(clock=clock):
        task = app.task(plain)
        free = app.task(name="free", max_pending=None)(plain)
        task.delay_many([{"key": "a"}] * 3)
        with pytest.raises(StoreFull, match="plain: "):
            task.delay("b")
        free.delay("a")
        with pytest.raises(StoreFull, match=r"^4 tasks wait already and max_pending is 4"):
            await free.enqueue("b")
        with pytest.raises(StoreFull):
            await app.enqueue_many([free.s("b")])
        with pytest.raises(StoreFull):
            app.named("elsewhere").delay(x=1)


def test_scheduler_refuses_adds_above_max_pending() -> None:
    class Few(Email):
        unique = None
        max_pending = 1

    registry = TaskConsumerRegistry()
    registry.register(Few())
    scheduler = Scheduler(registry=registry)
    scheduler.add_task(Few().produce({"to": "ann"}))
    with pytest.raises(StoreFull, match="email: 1 tasks wait"):
        scheduler.add_task(Few().produce({"to": "bob"}))


def test_concurrent_adds_release_their_reservations(app: App) -> None:
    """All clients count adds in progress, and only while they are in progress."""
    task = app.task(max_pending=500)(plain)

    def add(_: int) -> int:
        try:
            return len(task.delay_many([{"key": "x"}] * 5))
        except StoreFull:
            return 0

    with ThreadPoolExecutor(8) as threads:
        added = sum(threads.map(add, range(400)))
    assert 400 < added <= 500 + 8 * 5
    assert app.runtime.portal.run_sync(lambda client: client.operations.counts()) == {"ready": added}
    for info in app.sync.find(limit=100):
        app.sync.cancel(info.uuid)
    assert len(task.delay_many([{"key": "x"}] * (600 - added))) == 600 - added


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "3"])
def test_invalid_max_pending_is_refused(most: Any) -> None:
    with pytest.raises(ValueError, match="max_pending must be a whole number from 1"):
        App(store="memory://", max_pending=most)
    with pytest.raises(TypeError, match="max_pending must be a whole number from 1"):
        App(store="memory://").task(max_pending=most)(plain)


# -- how long what has ended stays


KEPT: list[tuple[dict[str, Any], tuple[int, int, int]]] = [
    ({}, (7 * DAY, 30 * DAY, DAY)),
    ({"keep": timedelta(hours=2)}, (2 * HOUR, 2 * HOUR, 2 * HOUR)),
    ({"keep": 7200, "keep_failed": 3600}, (2 * HOUR, HOUR, 2 * HOUR)),
    ({"keep_result": 60}, (7 * DAY, 30 * DAY, 60_000)),
]


@pytest.mark.parametrize(("options", "kept"), KEPT)
async def test_ended_tasks_are_kept_as_long_as_the_options_say(
    app: App, clock: ManualClock, options: dict[str, Any], kept: tuple[int, int, int]
) -> None:
    """Succeeded and cancelled, failed, the result."""

    @app.task(**options)
    async def work(fails: bool) -> str:
        if fails:
            raise ValueError("as it should")
        return "done"

    stopped = work.delay(False)
    stopped.cancel()
    good = work.delay(False)
    bad = work.delay(True)
    async with app.running():
        await until(lambda: good.done() and bad.done())
    for handle, keep in ((stopped, kept[0]), (good, kept[0]), (bad, kept[1])):
        history = record_of(app, handle).history
        assert history.ended is not None
        assert history.keep_until == history.ended + keep
    clock.advance(kept[2] - 1)
    assert record_of(app, good).history.result is not None
    clock.advance(1)
    if kept[2] < kept[0]:
        assert record_of(app, good).history.result is None
    clock.advance(kept[0])
    await app.purge()
    assert {info.uuid for info in await app.find()} == ({bad.uuid} if kept[1] > kept[0] + kept[2] else set())


async def test_retention_of_zero_keeps_nothing(app: App) -> None:
    task = app.task(keep=0)(plain)
    handle = task.delay("x")
    async with app.running():
        await until(lambda: not app.sync.find().tasks)
    assert app.runtime.portal.run_sync(lambda client: client.store.get([handle.uuid])) == [None]


async def test_max_kept_holds_while_a_worker_runs(clock: ManualClock) -> None:
    """A tenth of a second a task: 600 of them between one purge and the next."""
    app = App("busy", store="memory://", concurrency=2, max_kept=50)
    most = [0]

    @app.task
    async def work() -> None:
        clock.advance(100)
        kept = (await app.runtime.portal.run(lambda client: client.store.tally())).get(("work", "succeeded"), 0)
        most[0] = max(most[0], kept)

    with app.override(clock=clock):
        handles = work.delay_many([{}] * 3_000)
        async with app.running():
            await until(lambda: handles[-1].done())
        assert 50 < most[0] < 750
        await app.purge()
        assert len(await app.find(limit=1000)) == 50


async def test_backlog_past_its_retention_is_purged_at_once(clock: ManualClock) -> None:
    app = App("past", store="memory://", defaults={"keep": 60})

    @app.task
    async def work() -> None: ...

    def counts() -> dict[str, int]:
        return app.runtime.portal.run_sync(lambda client: client.operations.counts())

    with app.override(clock=clock):
        work.delay_many([{}] * 11_000)
        async with app.running():
            await until(lambda: counts() == {"succeeded": 11_000})
            clock.advance(61_000)
            await until(lambda: counts() == {})
