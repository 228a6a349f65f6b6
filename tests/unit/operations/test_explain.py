"""Why a task is not running: every reason is shown, and gone with its cause. On memory and on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onthedot import App, TaskNotFound
from onthedot.clock.epoch import from_ms
from onthedot.clock.manual import ManualClock
from onthedot.model.failures import encode_failure, encode_reason
from onthedot.model.task import TaskState
from onthedot.operations import Operations
from onthedot.operations.explain import Explanation
from onthedot.stores.contract import HeartbeatResult, Lease, Requeued, Store
from onthedot.stores.memory import MemoryStore
from onthedot.stores.sqlite import SqliteStore
from tests.contract import exercise
from tests.contract.steps import LEASE, Worker as AnyWorker, add, limit, task, tasks
from tests.support.waits import until

MINUTE = 60_000


class Worker(AnyWorker):
    """One that says what it knows, as an app's does."""

    sources: tuple[str, ...] = ("a", "b")

    async def heartbeat(self, lease: int = LEASE) -> HeartbeatResult:
        said = {"host": "vm", "pid": 7, "sources": self.sources, "max_retries": {"a": 3}}
        return await self.store.heartbeat(self.name, msgspec.json.encode(said), lease)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Store:
    return MemoryStore(clock) if request.param == "memory" else SqliteStore(tmp_path / "t.db", clock)


@pytest.fixture
def worker(store: Store) -> Worker:
    return Worker(store, "w1")


@pytest.fixture
def operations(store: Store, clock: ManualClock) -> Operations:
    return Operations(store, "client", clock)


@pytest.fixture(autouse=True)
def exercised(request: pytest.FixtureRequest) -> None:
    """In an open store, which agrees with itself afterwards."""
    if "store" not in request.fixturenames:
        return
    test, store = request.node.obj, request.getfixturevalue("store")

    @wraps(test)
    async def whole(**arguments: Any) -> None:
        await exercise(store, partial(test, **arguments))

    request.node.obj = whole


def uuids(explanation: Explanation) -> list[str | None]:
    return [holder.uuid for holder in explanation.by]


def others(explanation: Explanation) -> list[str]:
    return [reason.reason for reason in explanation.also]


def later(clock: ManualClock, ms: float) -> datetime:
    return from_ms(clock.now() + ms)


# -- the ten


async def test_not_due(store: Store, worker: Worker, operations: Operations, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(after=MINUTE))
    told = await operations.explain(uuid)
    assert (told.reason, told.state, told.until) == ("not_due", TaskState.SCHEDULED, later(clock, MINUTE))
    assert told.estimated_start == told.until
    assert told.text == "it is not due before 2026-01-01 00:01:00 UTC"
    clock.advance(MINUTE)
    assert (await operations.explain(uuid)).reason == "behind"


async def test_a_paused_source(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await operations.pause("a", reason="deploy until noon")
    told = await operations.explain(uuid)
    assert (told.reason, told.text, told.estimated_start) == ("source_paused", "a is paused: deploy until noon", None)
    await operations.resume("a")
    assert (await operations.explain(uuid)).reason == "behind"


async def test_a_paused_key(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=5)
    uuid, other = await add(store, task(lane="a/acme"), task(lane="a/other"))
    await operations.pause("a", key="acme", reason="they asked for it")
    told = await operations.explain(uuid)
    assert (told.reason, told.text) == ("key_paused", "acme of a is paused: they asked for it")
    assert (await operations.explain(other)).reason == "behind"
    await operations.resume("a", key="acme")
    assert (await operations.explain(uuid)).reason == "behind"


async def test_the_limit_of_a_source(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    await limit(store, "a", cap=2)
    first, second, third = await add(store, *tasks(3))
    assert await worker.runs() == [first, second]
    told = await operations.explain(third)
    assert (told.reason, told.text) == ("source_limit", "a may run 2 at once, and 2 run")
    assert [(each.uuid, each.worker, each.where) for each in told.by] == [
        (second, "w1", "vm:7"), (first, "w1", "vm:7"),
    ]  # fmt: skip
    assert told.by_count == 2
    await worker.settle(worker.done(first))
    assert (await operations.explain(third)).reason == "behind"


async def test_the_limit_of_a_key(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, *tasks(2, lane="a/acme"))
    assert await worker.runs() == [first]
    told = await operations.explain(second)
    assert (told.reason, told.text) == ("key_limit", "acme of a may run 1 at once, and 1 runs")
    assert (told.state, uuids(told), told.by_count) == (TaskState.READY, [first], 1)
    await worker.settle(worker.done(first))
    assert (await operations.explain(second)).reason == "behind"


@pytest.mark.parametrize("lane", [None, "a/acme"])
async def test_a_rate(
    store: Store, worker: Worker, operations: Operations, clock: ManualClock, lane: str | None
) -> None:
    await worker.heartbeat()
    await limit(store, lane or "a", rate=0.5, burst=1)
    first, second = await add(store, *tasks(2, lane=lane))
    assert await worker.runs() == [first]
    clock.advance(500)
    told = await operations.explain(second)
    assert (told.reason, told.until) == ("rate", later(clock, 1500))
    assert told.estimated_start == told.until
    name = "acme of a" if lane else "a"
    assert told.text == f"{name} may start 30/m, and the next at 2026-01-01 00:00:02 UTC"
    clock.advance(1500)
    assert (await operations.explain(second)).reason == "behind"


async def test_unknown_to_live_workers(store: Store, worker: Worker, operations: Operations) -> None:
    worker.sources = ("b", "c")
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    told = await operations.explain(uuid)
    assert (told.reason, told.text) == ("unknown", "the only live worker does not know a; known are: b, c")
    assert [(each.worker, each.where) for each in told.by] == [("w1", "vm:7")]
    worker.sources = ("a",)
    await worker.heartbeat()
    assert (await operations.explain(uuid)).reason == "behind"


async def test_held_by_a_dead_worker(store: Store, worker: Worker, operations: Operations, clock: ManualClock) -> None:
    await worker.heartbeat(5000)
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]
    assert (await operations.explain(uuid)).reason == "running"
    clock.advance(5000)
    told = await operations.explain(uuid)
    assert (told.reason, told.state, others(told)) == ("dead_worker", TaskState.RUNNING, ["no_worker"])
    assert "leased to worker w1, which is dead" in told.text
    other = Worker(store, "w2")
    await other.heartbeat()
    assert others(await operations.explain(uuid)) == []
    await other.claim("none")
    assert (await operations.explain(uuid)).reason == "behind"


async def test_behind_others(store: Store, worker: Worker, operations: Operations, clock: ManualClock) -> None:
    await worker.heartbeat()
    ended = await add(store, *tasks(6))
    for uuid in ended:  # one every two seconds
        assert await worker.runs(total=1) == [uuid]
        clock.advance(2000)
        await worker.settle(worker.done(uuid))
    *rest, last = await add(store, *tasks(30))
    told = await operations.explain(last)
    assert (told.reason, told.ahead, told.also) == ("behind", 29, ())
    assert told.text.startswith("behind 29 tasks; starts about 2026-01-01 00:01:")
    assert told.estimated_start is not None
    assert 50 < (told.estimated_start - clock.moment()).total_seconds() < 65
    await worker.cancel(*rest)
    told = await operations.explain(last)
    assert (told.ahead, told.text.partition(";")[0]) == (0, "the next to start when a worker has a free slot")


async def test_expired(store: Store, worker: Worker, operations: Operations, clock: ManualClock) -> None:
    (uuid,) = await add(store, task(expires=1000))
    clock.advance(999)
    assert (await operations.explain(uuid)).reason == "no_worker"
    clock.advance(1)
    told = await operations.explain(uuid)
    assert (told.reason, others(told)) == ("expired", ["no_worker"])
    assert told.text == "it expired at 2026-01-01 00:00:01 UTC: a worker ends it without a run at its next turn"
    await worker.heartbeat()
    assert await worker.chores() == {uuid: "expired"}
    assert (await operations.explain(uuid)).reason == "expired"
    await worker.settle(worker.cancelled(uuid, encode_reason("expired")))
    told = await operations.explain(uuid)
    assert (told.reason, told.text) == ("ended", "cancelled at 2026-01-01 00:00:01 UTC: expired")


# -- and the others


async def test_no_worker_at_all(store: Store, worker: Worker, operations: Operations) -> None:
    (uuid,) = await add(store, task())
    told = await operations.explain(uuid)
    assert (told.reason, told.estimated_start) == ("no_worker", None)
    await worker.heartbeat()
    assert (await operations.explain(uuid)).reason == "behind"
    await store.close_session("w1")
    assert (await operations.explain(uuid)).reason == "no_worker"


async def test_a_retry(store: Store, worker: Worker, operations: Operations, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]
    await worker.settle(worker.retry(uuid, 5000, encode_failure(ValueError("no order 7"), 1)))
    told = await operations.explain(uuid)
    assert (told.reason, told.until) == ("retry", later(clock, 5000))
    assert told.text == "it waits for retry 1 of 3 at 2026-01-01 00:00:05 UTC, after ValueError: no order 7"
    clock.advance(5000)
    assert (await operations.explain(uuid)).reason == "behind"


async def test_running_and_ended(store: Store, worker: Worker, operations: Operations, clock: ManualClock) -> None:
    await worker.heartbeat()
    good, bad = await add(store, *tasks(2))
    assert await worker.runs() == [good, bad]
    clock.advance(3000)
    told = await operations.explain(good)
    assert (told.reason, told.state) == ("running", TaskState.RUNNING)
    assert told.text == "runs on worker w1 (vm:7) since 2026-01-01 00:00:00 UTC"
    assert [(each.uuid, each.worker, each.since) for each in told.by] == [(good, "w1", later(clock, -3000))]
    await worker.settle(worker.done(good), worker.failed(bad, encode_failure(KeyError("x"), 1)))
    told = await operations.explain(good)
    assert (told.reason, told.text) == ("ended", "succeeded at 2026-01-01 00:00:03 UTC")
    assert (await operations.explain(bad)).text == "failed at 2026-01-01 00:00:03 UTC: KeyError: 'x'"
    await store.revive([bad])
    assert (await operations.explain(bad)).reason == "behind"


async def test_no_such_task_and_beginnings(store: Store, operations: Operations) -> None:
    await add(store, task(uuid="abc1"), task(uuid="abd1"))
    assert (await operations.explain("abc")).uuid == "abc1"
    with pytest.raises(TaskNotFound, match="no task zzz"):
        await operations.explain("zzz")
    with pytest.raises(TaskNotFound, match="several uuids"):
        await operations.explain("ab")


async def test_a_cancel_under_way(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    running, waiting = await add(store, *tasks(2))
    assert await worker.runs(total=1) == [running]
    await store.cancel("client", [running, waiting])
    told = await operations.explain(running)
    assert (told.reason, told.state, uuids(told)) == ("cancelling", TaskState.RUNNING, [running])
    assert (await operations.explain(waiting)).reason == "cancelling"
    await worker.settle(worker.cancelled(running, encode_reason("stopped")))
    assert (await operations.explain(running)).text.endswith(": stopped")


async def test_one_that_crashed_too_often(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(max_crashes=1))
    assert await worker.runs() == [uuid]
    await worker.crash()
    told = await operations.explain(uuid)
    assert (told.reason, told.text[:26]) == ("ending", "its worker died 1 times ov")


async def test_a_suspect_waits_for_a_worker_without_one(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2, max_crashes=1))
    assert await worker.runs(suspects=1) == [first]
    told = await operations.explain(second)
    assert (told.reason, uuids(told)) == ("suspect", [first])
    other = Worker(store, "w2")
    await other.heartbeat()
    assert (await operations.explain(second)).reason == "behind"


async def test_what_else_is_in_its_way(store: Store, worker: Worker, operations: Operations) -> None:
    worker.sources = ("b",)
    await worker.heartbeat()
    await limit(store, "a", cap=1)
    await limit(store, "a/acme", rate=1.0, burst=1)
    first, _, uuid = await add(store, task(lane="a/acme"), task(), task(lane="a/acme", after=MINUTE))
    assert await worker.runs(total=1) == [first]
    await operations.pause("a")
    told = await operations.explain(uuid)
    assert [told.reason, *others(told)] == ["not_due", "source_paused", "unknown", "rate", "behind"]
    assert (told.ahead, told.estimated_start) == (1, None)


async def test_those_that_are_let_in_but_do_not_run_yet(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    await limit(store, "@api", cap=2)
    first, second, third = await add(store, *tasks(3, lane="@api"))
    assert await worker.runs(total=1) == [first]
    told = await operations.explain(third)
    assert (told.reason, told.text) == ("key_limit", "@api may run 2 at once, and 1 runs, 1 is about to")
    assert ([(each.uuid, each.worker) for each in told.by], told.by_count) == ([(first, "w1"), (second, None)], 2)


async def test_a_cost_that_no_bucket_holds_waits_for_a_full_one(
    store: Store, worker: Worker, operations: Operations, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    first, uuid = await add(store, task(lane="a/acme", cost=2), task(lane="a/acme", cost=3))
    assert await worker.runs() == [first]
    told = await operations.explain(uuid)
    assert (told.reason, told.until) == ("rate", later(clock, 2000))


async def test_between_two_stores(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    leased = await store.lift("mover", [uuid])
    assert (await operations.explain(uuid)).reason == "moving"
    await store.turn("mover", [Requeued(Lease(uuid, leased.fence, "mover"), None, counted=False)], None)
    assert (await operations.explain(uuid)).reason == "behind"


async def test_who_holds_a_limit_is_seen_behind_all_that_wait(
    store: Store, worker: Worker, operations: Operations
) -> None:
    await worker.heartbeat()
    await limit(store, "a", cap=1)
    (first,) = await add(store, task())
    assert await worker.runs() == [first]
    for _ in range(21):  # more than the store looks at in a call
        await store.add(tasks(1000))
    (last,) = await add(store, task())
    told = await operations.explain(last)
    assert (told.reason, uuids(told), told.ahead) == ("source_limit", [first], 21_000)


# -- in an app


@pytest.fixture(params=["memory", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App("shop", store="memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/shop.db")
    yield app
    app.shutdown()


async def test_an_app_tells_it(shop: App) -> None:
    go = asyncio.Event()

    @shop.task(concurrency=1)
    async def nap() -> None:
        await go.wait()

    async with shop.running():
        first, second = await nap.enqueue(), await nap.enqueue()
        await until(lambda: reason_of(shop, first.uuid, "running"))
        told = await shop.explain(second.uuid)
        assert (told.reason, uuids(told)) == ("source_limit", [first.uuid])
        assert told.by[0].where.partition(":")[0]
        go.set()
        await second
        assert (await shop.explain(second.uuid)).reason == "ended"


async def reason_of(app: App, uuid: str, reason: str) -> bool:
    return (await app.explain(uuid)).reason == reason


async def test_a_source_that_is_declared_later_is_known(shop: App) -> None:
    async with shop.running():

        @shop.task(max_retries=2, backoff=3600.0)
        async def late() -> None:
            raise ValueError("not today")

        await shop.pause("late")
        task = await late.enqueue()
        await until(lambda: reason_of(shop, task.uuid, "source_paused"))
        await until(lambda: knows(shop, task.uuid))
        await shop.resume("late")
        await until(lambda: reason_of(shop, task.uuid, "retry"))
        told = await shop.explain(task.uuid)
        assert told.text.startswith("it waits for retry 1 of 2 at ")
        assert told.text.endswith(", after ValueError: not today")


async def knows(app: App, uuid: str) -> bool:
    return "unknown" not in others(await app.explain(uuid))


def test_sync_code_is_told_too(shop: App) -> None:
    @shop.task
    def greet() -> None: ...

    handle = greet.options(after=60).delay()
    told = shop.sync.explain(handle.uuid[:-2])
    assert (told.uuid, told.reason, others(told)) == (handle.uuid, "not_due", ["no_worker"])
