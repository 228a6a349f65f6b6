"""Reasons why a task is not running: each is shown, and goes away with its cause. On memory and SQLite."""

from __future__ import annotations

from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onthedot import TaskNotFound
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

MINUTE = 60_000


class Worker(AnyWorker):
    """A worker whose session has the info that an app writes."""

    sources: tuple[str, ...] = ("a", "b")

    async def heartbeat(self, lease: int = LEASE) -> HeartbeatResult:
        info = {"host": "vm", "pid": 7, "sources": self.sources, "max_retries": {"a": 3}}
        return await self.store.heartbeat(self.name, msgspec.json.encode(info), lease)


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
    """Run each test in an open store, and check the consistency of the store afterwards."""
    if "store" not in request.fixturenames:
        return
    test = request.node.obj
    store = request.getfixturevalue("store")

    @wraps(test)
    async def wrapped(**arguments: Any) -> None:
        await exercise(store, partial(test, **arguments))

    request.node.obj = wrapped


def uuids(explanation: Explanation) -> list[str | None]:
    return [holder.uuid for holder in explanation.by]


def others(explanation: Explanation) -> list[str]:
    return [reason.reason for reason in explanation.also]


def later(clock: ManualClock, ms: float) -> datetime:
    return from_ms(clock.now() + ms)


# -- common reasons


async def test_task_that_is_not_due_is_explained_with_its_due_time(
    store: Store, worker: Worker, operations: Operations, clock: ManualClock
) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(after=MINUTE))
    found = await operations.explain(uuid)
    assert (found.reason, found.state, found.until) == ("not_due", TaskState.SCHEDULED, later(clock, MINUTE))
    assert found.estimated_start == found.until
    assert found.text == "it is not due before 2026-01-01 00:01:00 UTC"
    clock.advance(MINUTE)
    assert (await operations.explain(uuid)).reason == "behind"


async def test_paused_source_is_explained_with_its_reason(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await operations.pause("a", reason="deploy until noon")
    found = await operations.explain(uuid)
    assert (found.reason, found.text, found.estimated_start) == (
        "source_paused",
        "a is paused: deploy until noon",
        None,
    )
    await operations.resume("a")
    assert (await operations.explain(uuid)).reason == "behind"


async def test_paused_key_holds_back_only_its_tasks(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=5)
    uuid, other = await add(store, task(lane="a/acme"), task(lane="a/other"))
    await operations.pause("a", key="acme", reason="they asked for it")
    found = await operations.explain(uuid)
    assert (found.reason, found.text) == ("key_paused", "acme of a is paused: they asked for it")
    assert (await operations.explain(other)).reason == "behind"
    await operations.resume("a", key="acme")
    assert (await operations.explain(uuid)).reason == "behind"


async def test_full_source_is_explained_with_the_running_tasks(
    store: Store, worker: Worker, operations: Operations
) -> None:
    await worker.heartbeat()
    await limit(store, "a", cap=2)
    first, second, third = await add(store, *tasks(3))
    assert await worker.runs() == [first, second]
    found = await operations.explain(third)
    assert (found.reason, found.text) == ("source_limit", "a may run 2 at once, and 2 run")
    assert [(each.uuid, each.worker, each.where) for each in found.by] == [
        (second, "w1", "vm:7"), (first, "w1", "vm:7"),
    ]  # fmt: skip
    assert found.by_count == 2
    await worker.settle(worker.done(first))
    assert (await operations.explain(third)).reason == "behind"


async def test_full_key_is_explained_with_the_running_tasks(
    store: Store, worker: Worker, operations: Operations
) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, *tasks(2, lane="a/acme"))
    assert await worker.runs() == [first]
    found = await operations.explain(second)
    assert (found.reason, found.text) == ("key_limit", "acme of a may run 1 at once, and 1 runs")
    assert (found.state, uuids(found), found.by_count) == (TaskState.READY, [first], 1)
    await worker.settle(worker.done(first))
    assert (await operations.explain(second)).reason == "behind"


@pytest.mark.parametrize("lane", [None, "a/acme"])
async def test_rate_is_explained_with_the_time_of_the_next_start(
    store: Store, worker: Worker, operations: Operations, clock: ManualClock, lane: str | None
) -> None:
    await worker.heartbeat()
    await limit(store, lane or "a", rate=0.5, burst=1)
    first, second = await add(store, *tasks(2, lane=lane))
    assert await worker.runs() == [first]
    clock.advance(500)
    found = await operations.explain(second)
    assert (found.reason, found.until) == ("rate", later(clock, 1500))
    assert found.estimated_start == found.until
    name = "acme of a" if lane else "a"
    assert found.text == f"{name} may start 30/m, and the next at 2026-01-01 00:00:02 UTC"
    clock.advance(1500)
    assert (await operations.explain(second)).reason == "behind"


async def test_misspelt_source_gets_a_suggestion(store: Store, worker: Worker, operations: Operations) -> None:
    worker.sources = ("send", "report")
    await worker.heartbeat()
    (uuid,) = await add(store, task("sned"))
    assert (await operations.explain(uuid)).text == "the only live worker does not know sned; did you mean 'send'?"


async def test_source_that_no_live_worker_knows_is_explained(
    store: Store, worker: Worker, operations: Operations
) -> None:
    worker.sources = ("b", "c")
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    found = await operations.explain(uuid)
    assert (found.reason, found.text) == ("unknown", "the only live worker does not know a; there are: b, c")
    assert [(each.worker, each.where) for each in found.by] == [("w1", "vm:7")]
    worker.sources = ("a",)
    await worker.heartbeat()
    assert (await operations.explain(uuid)).reason == "behind"


async def test_task_of_a_dead_worker_is_explained_until_it_is_reaped(
    store: Store, worker: Worker, operations: Operations, clock: ManualClock
) -> None:
    await worker.heartbeat(5000)
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]
    assert (await operations.explain(uuid)).reason == "running"
    clock.advance(5000)
    found = await operations.explain(uuid)
    assert (found.reason, found.state, others(found)) == ("dead_worker", TaskState.RUNNING, ["no_worker"])
    assert "leased to worker w1, which is dead" in found.text
    other = Worker(store, "w2")
    await other.heartbeat()
    assert others(await operations.explain(uuid)) == []
    await other.claim("none")
    assert (await operations.explain(uuid)).reason == "behind"


async def test_task_behind_others_has_an_estimated_start(
    store: Store, worker: Worker, operations: Operations, clock: ManualClock
) -> None:
    await worker.heartbeat()
    ended = await add(store, *tasks(6))
    for uuid in ended:  # one every two seconds
        assert await worker.runs(total=1) == [uuid]
        clock.advance(2000)
        await worker.settle(worker.done(uuid))
    *rest, last = await add(store, *tasks(30))
    found = await operations.explain(last)
    assert (found.reason, found.ahead, found.also) == ("behind", 29, ())
    assert found.text.startswith("behind 29 tasks; starts about 2026-01-01 00:01:")
    assert found.estimated_start is not None
    assert 50 < (found.estimated_start - clock.moment()).total_seconds() < 65
    await worker.cancel(*rest)
    found = await operations.explain(last)
    assert (found.ahead, found.text.partition(";")[0]) == (0, "the next to start when a worker has a free slot")


async def test_expired_task_is_explained_until_it_has_ended(
    store: Store, worker: Worker, operations: Operations, clock: ManualClock
) -> None:
    (uuid,) = await add(store, task(expires=1000))
    clock.advance(999)
    assert (await operations.explain(uuid)).reason == "no_worker"
    clock.advance(1)
    found = await operations.explain(uuid)
    assert (found.reason, others(found)) == ("expired", ["no_worker"])
    assert found.text == "it expired at 2026-01-01 00:00:01 UTC: a worker ends it without a run at its next turn"
    await worker.heartbeat()
    assert await worker.chores() == {uuid: "expired"}
    assert (await operations.explain(uuid)).reason == "expired"
    await worker.settle(worker.cancelled(uuid, encode_reason("expired")))
    found = await operations.explain(uuid)
    assert (found.reason, found.text) == ("ended", "cancelled at 2026-01-01 00:00:01 UTC: expired")


# -- other reasons


async def test_missing_worker_is_a_reason(store: Store, worker: Worker, operations: Operations) -> None:
    (uuid,) = await add(store, task())
    found = await operations.explain(uuid)
    assert (found.reason, found.estimated_start) == ("no_worker", None)
    await worker.heartbeat()
    assert (await operations.explain(uuid)).reason == "behind"
    await store.close_session("w1")
    assert (await operations.explain(uuid)).reason == "no_worker"


async def test_retry_is_explained_with_its_number_and_error(
    store: Store, worker: Worker, operations: Operations, clock: ManualClock
) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]
    await worker.settle(worker.retry(uuid, 5000, encode_failure(ValueError("no order 7"), 1)))
    found = await operations.explain(uuid)
    assert (found.reason, found.until) == ("retry", later(clock, 5000))
    assert found.text == "it waits for retry 1 of 3 at 2026-01-01 00:00:05 UTC, after ValueError: no order 7"
    clock.advance(5000)
    assert (await operations.explain(uuid)).reason == "behind"


async def test_running_and_ended_tasks_are_explained(
    store: Store, worker: Worker, operations: Operations, clock: ManualClock
) -> None:
    await worker.heartbeat()
    good, bad = await add(store, *tasks(2))
    assert await worker.runs() == [good, bad]
    clock.advance(3000)
    found = await operations.explain(good)
    assert (found.reason, found.state) == ("running", TaskState.RUNNING)
    assert found.text == "runs on worker w1 (vm:7) since 2026-01-01 00:00:00 UTC"
    assert [(each.uuid, each.worker, each.since) for each in found.by] == [(good, "w1", later(clock, -3000))]
    await worker.settle(worker.done(good), worker.failed(bad, encode_failure(KeyError("x"), 1)))
    found = await operations.explain(good)
    assert (found.reason, found.text) == ("ended", "succeeded at 2026-01-01 00:00:03 UTC")
    assert (await operations.explain(bad)).text == "failed at 2026-01-01 00:00:03 UTC: KeyError: 'x'"
    await store.revive([bad])
    assert (await operations.explain(bad)).reason == "behind"


async def test_first_characters_of_a_uuid_are_completed(store: Store, operations: Operations) -> None:
    await add(store, task(uuid="abc1"), task(uuid="abd1"))
    assert await operations.tasks.complete_uuid("abc") == "abc1"
    assert await operations.tasks.complete_uuid("abd1") == "abd1"
    for unknown in ("zzz", ""):
        with pytest.raises(TaskNotFound, match=f"no task {unknown}"):
            await operations.tasks.complete_uuid(unknown)
    with pytest.raises(TaskNotFound, match="several uuids"):
        await operations.tasks.complete_uuid("ab")
    for part in ("abc", "ab"):
        with pytest.raises(TaskNotFound, match=f"no task {part}"):
            await operations.explain(part)


async def test_requested_cancel_is_explained(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    running, waiting = await add(store, *tasks(2))
    assert await worker.runs(total=1) == [running]
    await store.cancel("client", [running, waiting])
    found = await operations.explain(running)
    assert (found.reason, found.state, uuids(found)) == ("cancelling", TaskState.RUNNING, [running])
    assert (await operations.explain(waiting)).reason == "cancelling"
    await worker.settle(worker.cancelled(running, encode_reason("stopped")))
    assert (await operations.explain(running)).text.endswith(": stopped")


async def test_task_that_crashed_too_often_is_about_to_end(
    store: Store, worker: Worker, operations: Operations
) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(max_crashes=1))
    assert await worker.runs() == [uuid]
    await worker.crash()
    found = await operations.explain(uuid)
    assert (found.reason, found.text[:26]) == ("ending", "its worker died 1 times ov")


async def test_suspect_waits_for_a_worker_without_a_suspect(
    store: Store, worker: Worker, operations: Operations
) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2, max_crashes=1))
    assert await worker.runs(suspects=1) == [first]
    found = await operations.explain(second)
    assert (found.reason, uuids(found)) == ("suspect", [first])
    other = Worker(store, "w2")
    await other.heartbeat()
    assert (await operations.explain(second)).reason == "behind"


async def test_further_reasons_follow_the_first(store: Store, worker: Worker, operations: Operations) -> None:
    worker.sources = ("b",)
    await worker.heartbeat()
    await limit(store, "a", cap=1)
    await limit(store, "a/acme", rate=1.0, burst=1)
    first, _, uuid = await add(store, task(lane="a/acme"), task(), task(lane="a/acme", after=MINUTE))
    assert await worker.runs(total=1) == [first]
    await operations.pause("a")
    found = await operations.explain(uuid)
    assert [found.reason, *others(found)] == ["not_due", "source_paused", "unknown", "rate", "behind"]
    assert (found.ahead, found.estimated_start) == (1, None)


async def test_admitted_tasks_that_do_not_run_yet_count_as_holders(
    store: Store, worker: Worker, operations: Operations
) -> None:
    await worker.heartbeat()
    await limit(store, "@api", cap=2)
    first, second, third = await add(store, *tasks(3, lane="@api"))
    assert await worker.runs(total=1) == [first]
    found = await operations.explain(third)
    assert (found.reason, found.text) == ("key_limit", "@api may run 2 at once, and 1 runs, 1 is about to")
    assert ([(each.uuid, each.worker) for each in found.by], found.by_count) == ([(first, "w1"), (second, None)], 2)


async def test_task_that_costs_more_than_the_burst_waits_for_a_full_bucket(
    store: Store, worker: Worker, operations: Operations, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    first, uuid = await add(store, task(lane="a/acme", cost=2), task(lane="a/acme", cost=3))
    assert await worker.runs() == [first]
    found = await operations.explain(uuid)
    assert (found.reason, found.until) == ("rate", later(clock, 2000))


async def test_lifted_task_is_explained_as_moving(store: Store, worker: Worker, operations: Operations) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    leased = await store.lift("mover", [uuid])
    assert (await operations.explain(uuid)).reason == "moving"
    await store.turn("mover", [Requeued(Lease(uuid, leased.fence, "mover"), None, counted=False)], None)
    assert (await operations.explain(uuid)).reason == "behind"


async def test_holder_of_a_limit_is_found_behind_thousands_of_pending_tasks(
    store: Store, worker: Worker, operations: Operations
) -> None:
    await worker.heartbeat()
    await limit(store, "a", cap=1)
    (first,) = await add(store, task())
    assert await worker.runs() == [first]
    for _ in range(21):  # more than the store reads in one call
        await store.add(tasks(1000))
    (last,) = await add(store, task())
    found = await operations.explain(last)
    assert (found.reason, uuids(found), found.ahead) == ("source_limit", [first], 21_000)
