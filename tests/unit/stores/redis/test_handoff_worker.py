"""An idle worker runs a handed-off task once, whatever happens around it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from onthedot import App, TaskCancelled, TaskHandle, current_task
from onthedot.engine.worker import Worker
from onthedot.stores.contract import ClaimRequest, Hint, Lease, Note, Outcome, TurnResult
from onthedot.stores.redis import RedisStore
from tests.faults import task_app
from tests.faults.run_log import RunLog
from tests.faults.worker_processes import worker_processes
from tests.support.services import valkey
from tests.support.waits import SOON, until, wait_until
from tests.unit.stores.redis.test_lost_settles import forget


def calls(server: valkey.Server) -> int:
    with redis.Redis.from_url(server.url) as client:
        stats = client.info("commandstats")
        return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


async def test_new_task_costs_an_idle_worker_one_turn(server: valkey.Server) -> None:
    app = App("shop", store=server.url)

    @app.task
    async def send(number: int) -> int:
        return number

    async with app.running():
        for number in range(3):  # scripts are known, and the worker waits
            await (await send.enqueue(number)).result(timeout=20)
        await _waits(server)
        before = calls(server)
        handles: list[TaskHandle[int]] = []
        for number in range(20):
            handles.append(await send.enqueue(number))
            await _waits(server)
        assert calls(server) - before <= 20 * 2 + 3, "an add, and a turn that settles it; and a beat may come"
        assert [await handle.result(timeout=20) for handle in handles] == list(range(20))


async def _waits(server: valkey.Server) -> None:
    with redis.Redis.from_url(server.url) as client:
        await until(lambda: client.exists("onthedot:{shop}:idle_workers") == 1)
        await until(lambda: client.pubsub_channels("onthedot:{shop}:to:*"))  # and listens


async def _idle(app: App, server: valkey.Server) -> Worker:
    """Waits until the worker is subscribed and has an offer."""
    worker = app.runtime.worker
    assert worker is not None
    await _hears(server, worker.session_id)
    await _waits(server)
    return worker


async def _hears(server: valkey.Server, session: str) -> None:
    with redis.Redis.from_url(server.url) as client:
        await until(lambda: client.pubsub_numsub(f"onthedot:{{shop}}:to:{session}")[0][1] == 1)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Delays the answer to a request with an offer until after the hand-off: they use different connections."""
    answered = asyncio.Event()
    turn = RedisStore.turn

    async def slow(self: RedisStore, session: str, outcomes: Sequence[Outcome], ask: ClaimRequest | None) -> TurnResult:
        result = await turn(self, session, outcomes, ask)
        if result.claim is not None and not result.claim.fence:
            await asyncio.wait_for(answered.wait(), 10)
        return result

    monkeypatch.setattr(RedisStore, "turn", slow)
    return answered


async def test_handoff_before_the_answer_of_the_turn_is_not_lost(
    server: valkey.Server, answered: asyncio.Event
) -> None:
    app = App("shop", store=server.url, poll_interval=3600)
    ran: list[str] = []

    @app.task
    async def send() -> None:
        ran.append("ran")

    async with app.running():
        await _idle(app, server)
        handle = await send.enqueue()
        assert (await app.get(handle.uuid)).state == "running"
        assert ran == []
        answered.set()
        await handle.result(timeout=10)
    assert ran == ["ran"]


async def test_cancel_of_an_early_handoff_is_not_lost(server: valkey.Server, answered: asyncio.Event) -> None:
    """A heartbeat would report it as well, after ten seconds."""
    app = App("shop", store=server.url, poll_interval=3600)
    ran = list[str]()

    @app.task
    async def send() -> None:
        await asyncio.Event().wait()
        ran.append("ran")

    async with app.running():
        worker = await _idle(app, server)
        handle = await send.enqueue()
        assert (await app.get(handle.uuid)).state == "running"
        hinted = worker.hint_listener.receive
        requests = list[str]()

        def listened(hint: Hint) -> None:
            hinted(hint)
            requests.extend(hint.cancel_requests)

        worker.hint_listener.receive = listened  # type: ignore[method-assign]
        await handle.cancel()
        await until(lambda: requests == [handle.uuid])
        answered.set()
        with pytest.raises(TaskCancelled):
            await handle.result(timeout=10)
    assert ran == []


async def test_handed_off_task_is_not_counted_as_pending(server: valkey.Server) -> None:
    """By the process that has added it."""
    app = App("shop", store=server.url, poll_interval=3600)
    gate = asyncio.Event()
    begun = list[int]()

    @app.task
    async def send(number: int) -> None:
        begun.append(number)
        await gate.wait()

    gate.set()
    app.runtime.status_counts.watched = True
    async with app.running():
        worker = app.runtime.worker
        assert worker is not None
        for number in range(3):  # its subscription is confirmed, and waits again
            await (await send.enqueue(number)).result(timeout=SOON)
            await _waits(server)
        await until(lambda: worker.idle.is_set())
        await until(lambda: app.runtime.status_counts.now().ready == 0)
        gate.clear()
        await send.enqueue(3)
        await until(lambda: begun == [0, 1, 2, 3])
        await until(lambda: app.runtime.status_counts.now().ready == 0)
        gate.set()


async def test_handoff_while_notes_are_written_runs_once(
    server: valkey.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notes are written between the request and its turn, so the answer repeats the message."""
    app = App("shop", store=server.url, poll_interval=3600, stop_timeout=0)
    note = RedisStore.note
    go = threading.Event()
    over = threading.Event()
    noted = threading.Event()
    ran = list[str]()
    handles = list[Any]()

    @app.task(timeout=0.05)
    def stubborn() -> None:
        """A thread cannot be ended: its run is over, its slot is taken, and it still says how far it is."""
        over.wait(20)
        current_task().progress(1)
        go.wait(20)
        current_task().progress(2)
        noted.set()

    @app.task
    async def send() -> None:
        ran.append("ran")

    async def slow(self: RedisStore, notes: Sequence[Note]) -> Sequence[Lease]:
        worker = app.runtime.worker
        assert worker is not None
        if not go.is_set():  # in time for the second look
            go.set()
            await asyncio.to_thread(noted.wait, 20)
        elif not handles:
            handles.append(await send.enqueue())
            assert (await app.get(handles[0].uuid)).state == "running"
            await until(lambda: ran or (worker.handoff and worker.handoff.is_pending))
        return await note(self, notes)

    monkeypatch.setattr(RedisStore, "note", slow)
    async with app.running():
        await stubborn.enqueue()
        await _waits(server)
        over.set()
        await until(lambda: handles)
        await handles[0].result(timeout=10)
        await _waits(server)
    assert ran == ["ran"]


async def test_handoff_of_a_server_that_lost_data_is_recovered(
    server: valkey.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has an old offer, whose number the worker no longer accepts."""
    app = App("shop", store=server.url, poll_interval=3600)
    turn = RedisStore.turn
    gate = asyncio.Event()
    gate.set()

    async def gated(
        self: RedisStore, session: str, outcomes: Sequence[Outcome], ask: ClaimRequest | None
    ) -> TurnResult:
        await gate.wait()
        return await turn(self, session, outcomes, ask)

    monkeypatch.setattr(RedisStore, "turn", gated)

    @app.task
    async def send(number: int) -> int:
        return number

    async with app.running():
        await (await send.enqueue(0)).result(timeout=SOON)
        await _waits(server)
        assert server.ask("SAVE") == b"+OK"
        for number in range(3):
            await (await send.enqueue(number)).result(timeout=SOON)
            await _waits(server)
        gate.clear()
        await asyncio.to_thread(forget, server)
        worker = app.runtime.worker
        assert worker is not None
        await _hears(server, worker.session_id)
        handle = await send.enqueue(4)
        assert (await app.get(handle.uuid)).state == "running", "it was handed out"
        gate.set()
        assert await handle.result(timeout=SOON) == 4


@pytest.mark.parametrize("comes", ["before the answer", "while it runs", "after its end"])
async def test_doubled_handoff_runs_once_and_is_not_released(server: valkey.Server, comes: str) -> None:
    app = App("shop", store=server.url, poll_interval=3600)
    gate = asyncio.Event()
    ran = list[str]()

    @app.task
    async def send() -> None:
        ran.append("ran")
        await gate.wait()

    async with app.running():
        worker = app.runtime.worker
        leased = list[Hint]()
        asking = asyncio.Event()
        assert worker is not None
        hinted = worker.hint_listener.receive
        turn = app.runtime.store.turn

        def later(hint: Hint) -> None:
            leased.append(hint) if hint.handoff is not None else hinted(hint)

        async def turn_after_hint(*args: Any) -> TurnResult:
            if not asking.is_set():
                asking.set()
                await until(lambda: leased)
                if comes == "before the answer":
                    hinted(leased[0])
            return await turn(*args)

        await _hears(server, worker.session_id)
        await _waits(server)
        await until(lambda: worker.idle.is_set())
        worker.hint_listener.receive = later
        app.runtime.store.turn = turn_after_hint  # type: ignore[method-assign]
        worker.wakeup.set()
        await asking.wait()
        cursor = (await app.runtime.store.changes("", 1)).cursor
        handle = await send.enqueue()
        await until(lambda: ran)
        if comes == "while it runs":
            hinted(leased[0])
        gate.set()
        await handle.result(timeout=SOON)
        if comes == "after its end":
            hinted(leased[0])
        await until(lambda: worker.idle.is_set() and worker.is_drained())
        page = await app.runtime.store.changes(cursor, 100, resolve=100)
    assert [each.state for entry in page.entries for each in entry.transitions] == ["ready", "running", "succeeded"]
    assert ran == ["ran"]


async def test_worker_without_a_heartbeat_for_a_lease_confirms_before_it_starts(server: valkey.Server) -> None:
    """It may have been stopped, and another worker may have the task by now."""
    app = App("shop", store=server.url, poll_interval=3600)
    ran = list[int]()

    @app.task
    async def send() -> None:
        ran.append(worker.turns)

    async with app.running():
        worker = app.runtime.worker
        leased = list[int]()
        assert worker is not None
        hinted = worker.hint_listener.receive

        def after_a_stop(hint: Hint) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(worker.session, "is_fenced", lambda: True)
                hinted(hint)
            if hint.handoff is not None:
                leased.append(len(worker.runs))

        for _ in range(3):  # its subscription is confirmed, and waits again
            await (await send.enqueue()).result(timeout=SOON)
            await _waits(server)
        worker.hint_listener.receive = after_a_stop  # type: ignore[method-assign]
        await until(lambda: worker.idle.is_set())
        await (await send.enqueue()).result(timeout=SOON)
        await until(lambda: leased)
    assert (leased, len(ran)) == ([0], 4)


def test_worker_stopped_beyond_its_lease_does_not_start_a_handoff(server: valkey.Server, tmp_path: Path) -> None:
    """The message is in its socket, and another worker has run the task since."""
    url = f"{server.url}?lease=1"
    run_log = RunLog(tmp_path / "run_log")
    with task_app.app.override(store=url), worker_processes(url, tmp_path / "run_log", 1) as workers:
        task_app.slow.delay(0).result(timeout=SOON)  # it knows how these are done
        wait_until(lambda: _waiting(server) == 1)
        stopped = workers.workers[0]
        stopped.send_signal(signal.SIGSTOP)
        try:
            handle = task_app.slow.delay(0)
            assert handle.info().state == "running", "it was handed out"
            workers.workers.append(workers.start())
            handle.result(timeout=SOON)
        finally:
            stopped.send_signal(signal.SIGCONT)
        wait_until(lambda: "is lost: the store declared it dead" in workers.log.read_text())
        wait_until(lambda: _waiting(server) == 2)
    begun = [entry.pid for entry in run_log.entries() if entry.event == "begin"]
    run_log.close()
    assert begun == [worker.pid for worker in workers.workers]


def _waiting(server: valkey.Server) -> int:
    with redis.Redis.from_url(server.url) as client:
        return int(client.hlen("onthedot:{shop}:idle_workers"))
