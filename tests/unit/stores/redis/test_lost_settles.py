"""A server that restarts without its last writes: only lost claims and settles are repeated."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from onthedot import App, AsyncTaskHandle
from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import ClaimRequest, Completed, Lease, NewTask, SlotPool
from tests.support.services import valkey
from tests.support.waits import SOON, until
from tests.unit.stores.redis.test_errors import opened

pytestmark = pytest.mark.fault


def forget(server: valkey.Server) -> None:
    """Loses all writes since the last snapshot."""
    port = server.port
    server.kill()
    server.start(port)


async def is_running(handle: AsyncTaskHandle[Any]) -> bool:
    return await handle.state() == "running"


async def test_run_whose_claim_was_lost_is_settled_once(
    server: valkey.Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The same worker claims it again under the same number; it continues, settles once, and frees its slot."""
    app = App("shop", store=server.url, concurrency=2, stop_timeout=0)
    gate = asyncio.Event()
    begun = list[int]()
    loop = asyncio.get_running_loop()
    wrong = list[object]()
    loop.set_exception_handler(lambda _, context: wrong.append(context))

    @app.task
    async def work(number: int) -> int:
        begun.append(number)
        await gate.wait()
        return number

    async with app.running():
        await app.pause("work")
        handle = await work.enqueue(1)
        assert server.ask("SAVE") == b"+OK"
        await app.resume("work")
        await until(lambda: begun == [1])
        await asyncio.to_thread(forget, server)
        assert await handle.state() == "ready"
        await app.resume("work")
        await until(lambda: is_running(handle))
        gate.set()
        assert await handle.result(timeout=SOON) == 1
        gate.clear()
        more = [await work.enqueue(number) for number in (2, 3)]
        await until(lambda: begun == [1, 2, 3])
        gate.set()
        assert [await each.result(timeout=SOON) for each in more] == [2, 3]
    assert not [record for record in caplog.records if record.exc_info]
    gc.collect()
    assert wrong == []


async def test_task_whose_end_was_lost_runs_again_on_the_live_worker(server: valkey.Server) -> None:
    """The store has the task as running. The number of the next request shows the gap, and the answer has the task."""
    app = App("shop", store=server.url, stop_timeout=0)
    gate = asyncio.Event()
    begun = list[int]()
    long = asyncio.Event()

    @app.task
    async def work(number: int) -> int:
        begun.append(number)
        await (gate if number == 1 else long).wait()
        return number

    async with app.running():
        ends = await work.enqueue(1)
        runs = await work.enqueue(2)
        await until(lambda: sorted(begun) == [1, 2])
        assert server.ask("SAVE") == b"+OK"
        gate.set()
        assert await ends.result(timeout=SOON) == 1
        await asyncio.to_thread(forget, server)
        assert await ends.state() == "running"
        after = await work.enqueue(1)
        assert [await each.result(timeout=SOON) for each in (after, ends)] == [1, 1]
        assert begun.count(2) == 1, "what still runs goes on"
        long.set()
        assert await runs.result(timeout=SOON) == 2
    assert sorted(begun) == [1, 1, 1, 2]


async def test_task_whose_end_was_lost_is_claimed_by_another_worker(server: valkey.Server) -> None:
    """Under a fence that was used before: the former worker can no longer settle it."""
    task = NewTask(new_uuid(), "a", b"{}")
    mine = [SlotPool(1, {"a": 1})]
    async with opened(server.url) as store:
        for name in ("old", "new"):
            await store.heartbeat(name, b"", 60_000)
        await store.add([task])
        assert server.ask("SAVE") == b"+OK"
        first = (await store.turn("old", [], ClaimRequest(1, mine))).claim
        assert first is not None
        end = Completed(Lease(task.uuid, first.fence, "old"))
        assert list((await store.turn("old", [end], None)).verdicts) == ["ok"]
        await asyncio.to_thread(forget, server)
        again = (await store.turn("new", [], ClaimRequest(1, mine))).claim
        assert again is not None
        assert [record.uuid for record in again.tasks] == [task.uuid]
        assert again.fence == first.fence
        assert list((await store.turn("old", [end], None)).verdicts) == ["lost"]
        ended = Completed(Lease(task.uuid, again.fence, "new"))
        assert list((await store.turn("new", [ended], None)).verdicts) == ["ok"]
