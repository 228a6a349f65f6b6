"""A fresh task goes to a worker that waits for it, in the step that adds it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from onthedot import App, TaskCancelled, TaskHandle, current_task
from onthedot.clock import ManualClock
from onthedot.stores.contract import Ask, Hint, Lease, Limit, NewTask, Note, Outcome, Policy, Turn
from onthedot.stores.redis import RedisStore
from onthedot.task import new_uuid
from tests.contract.steps import Worker, add, look, names, state, states, task, tasks
from tests.contract.test_hints import Listener, listening
from tests.faults import shop
from tests.faults.fleet import fleet
from tests.faults.ledger import Ledger
from tests.services import valkey
from tests.stores.redis.test_forgotten import forget
from tests.waiting import SOON, until, wait_until

FOR = 1000.0


@dataclass
class Place:
    store: RedisStore
    clock: ManualClock
    worker: Worker
    listener: Listener

    async def waits(self, **room: int) -> None:
        claimed = await self.worker.claim("a", "b", waits=room or {"a": 5, "b": 5}, waits_for=FOR)
        assert (claimed.fence, claimed.more) == (0, False)


@asynccontextmanager
async def place(url: str) -> AsyncIterator[Place]:
    clock = ManualClock()
    store = RedisStore(url, clock, valkey.new_name())
    await store.open()
    worker = Worker(store, "w")
    listener = await listening(store, worker)
    yield Place(store, clock, worker, listener)
    await listener.leave()
    await store.shut()
    valkey.forget(store.prefix)


@pytest.fixture(params=["all rights", "few rights"])
def url(request: pytest.FixtureRequest) -> str:
    return valkey.url() if request.param == "all rights" else valkey.limited_url()


async def test_it_is_held_and_said_in_the_step_that_adds_it(url: str) -> None:
    async with place(url) as at:
        await at.waits()
        (row,) = await at.store.changes("", 1)
        added = await add(at.store, task("b"), task("b"))
        hint = await at.listener.hears(lambda hint: hint.held)
        assert hint.held is not None
        assert (hint.number, names(hint.held.tasks)) == (at.worker.number + 1, added)
        assert [record.body for record in hint.held.tasks] == [(await look(at.store, uuid)).body for uuid in added]
        assert await states(at.store, added) == ["running", "running"]
        assert await at.store.tally() == {("b", "running"): 2}
        moves = [msgspec.json.decode(said) for _, said in await at.store.changes(row[0], 10)]
        assert [(uuid, state) for _, uuid, _, state in moves[0]] == [
            *((uuid, "ready") for uuid in added), *((uuid, "running") for uuid in added)
        ]  # fmt: skip


async def test_the_next_ask_after_that_is_a_new_one(url: str) -> None:
    async with place(url) as at:
        await at.waits()
        (first,) = await add(at.store, task())
        assert await at.worker.runs() == [first]
        (second,) = await add(at.store, task())
        assert await at.worker.runs() == [second]
        assert await at.worker.settle(at.worker.done(first), at.worker.done(second)) == ["ok", "ok"]


async def test_a_turn_that_comes_late_takes_nothing_and_says_that_there_is_more(url: str) -> None:
    """Its answer got lost, and the claim that followed it was made by somebody else."""
    async with place(url) as at:
        await at.waits()
        handed, ready = await add(at.store, task()) + await add(at.store, task())
        late = await at.worker.claim(repeat=True, waits={"a": 5}, waits_for=FOR)
        assert (late.fence, names(late.tasks), late.more) == (0, [], True)
        await add(at.store, task("b"))
        assert await at.worker.runs("a", "b") == [handed], "the late one did not begin to wait"
        assert (await at.worker.runs("a", "b"))[0] == ready


async def not_handed_out(at: Place, *new: NewTask) -> None:
    added = await add(at.store, *new)
    assert await states(at.store, added) == ["ready"] * len(added)
    await at.listener.hears(lambda hint: new[0].source in hint.sources)


async def test_not_after_its_time(url: str) -> None:
    async with place(url) as at:
        await at.waits()
        at.clock.advance(FOR)
        await not_handed_out(at, task())


async def test_not_more_than_there_is_room_for(url: str) -> None:
    async with place(url) as at:
        await at.waits(a=2)
        await not_handed_out(at, *tasks(3))


async def test_not_more_than_a_server_lets_lie(url: str) -> None:
    """It cuts off who has 32 MB to read, if it is not told otherwise."""
    async with place(url) as at:
        await at.waits(a=5)
        await not_handed_out(at, *(task(body=b"x" * 300_000) for _ in range(4)))


async def test_not_what_it_did_not_say(url: str) -> None:
    async with place(url) as at:
        await at.waits(a=2, aa=2)
        await not_handed_out(at, task("b"))


async def test_a_number_is_no_name(url: str) -> None:
    async with place(url) as at:
        await at.waits(c=ord("b"), d=1)
        await not_handed_out(at, task("b"))


@pytest.mark.parametrize("by", ["code", "operator"])
async def test_not_what_has_a_limit(url: str, by: str) -> None:
    async with place(url) as at:
        await at.waits()
        await at.store.put([], [Limit("a", cap=1, by=by)])  # type: ignore[arg-type]
        await not_handed_out(at, task())


async def test_not_before_others_of_its_source(url: str) -> None:
    async with place(url) as at:
        await at.waits(a=1)
        first = await add(at.store, *tasks(2))
        await add(at.store, task())
        assert await at.worker.runs(total=2) == first


async def test_not_by_one_that_may_not_tell(server: valkey.Server) -> None:
    async with place(server.url) as at:
        await at.waits()
        assert server.ask("ACL", "SETUSER", "default", "-publish") == b"+OK"
        added = await add(at.store, task())
        assert await states(at.store, added) == ["ready"]
        assert await at.store.tally() == {("a", "ready"): 1}


@pytest.mark.parametrize("older", [{"unique": "k"}, {}], ids=["added alone", "one of too many"])
async def test_not_before_older_ones_of_other_sources(url: str, older: dict[str, Any]) -> None:
    """Who is told of those asks anew, and takes by rank."""
    async with place(url) as at:
        await at.waits(a=1, b=1)
        first, *_ = await add(at.store, *(task("b", **older) for _ in range(1 if older else 2)))
        await not_handed_out(at, task("a"))
        assert await at.worker.runs("a", "b", total=1) == [first]


@pytest.mark.parametrize("policy", [Policy(expires=1000), Policy(max_crashes=1)])
async def test_not_what_a_turn_must_look_at(url: str, policy: Policy) -> None:
    async with place(url) as at:
        await at.waits()
        await not_handed_out(at, NewTask(new_uuid(), "a", b"", policy=policy))


async def test_not_to_one_that_does_not_hear(url: str) -> None:
    async with place(url) as at:
        await at.waits()
        await at.listener.leave()
        with redis.Redis.from_url(valkey.url()) as client:
            await until(lambda: client.pubsub_numsub(f"{at.store.prefix}to:w")[0][1] == 0)
        (uuid,) = await add(at.store, task())
        assert await state(at.store, uuid) == "ready"


async def test_the_death_of_who_got_it_gives_it_back(url: str) -> None:
    async with place(url) as at:
        other = Worker(at.store, "other")
        await other.beat()
        await at.waits()
        (uuid,) = await add(at.store, task())
        await at.store.beat("w", b"", 0)
        assert await other.runs() == [uuid]
        assert (await look(at.store, uuid)).attempt == 2


@pytest.mark.parametrize("end", ["death", "close"])
async def test_who_is_gone_waits_no_more(url: str, end: str) -> None:
    async with place(url) as at:
        await at.waits()
        await (at.store.close("w") if end == "close" else at.store.beat("w", b"", 0))
        (uuid,) = await add(at.store, task())
        assert await state(at.store, uuid) == "ready"


async def test_a_full_server_lets_one_ask_and_wait(server: valkey.Server) -> None:
    async with place(server.url) as at:
        assert server.ask("CONFIG", "SET", "maxmemory", "1") == b"+OK"
        await at.waits()
        await at.waits()
        assert server.ask("CONFIG", "SET", "maxmemory", "0") == b"+OK"
        (uuid,) = await add(at.store, task())
        assert await state(at.store, uuid) == "running"


# -- in a worker


def calls(server: valkey.Server) -> int:
    with redis.Redis.from_url(server.url) as client:
        stats = client.info("commandstats")
        return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


async def test_a_fresh_task_costs_an_idle_worker_one_turn(server: valkey.Server) -> None:
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
        await until(lambda: client.exists("onthedot:{shop}:waiting") == 1)
        await until(lambda: client.pubsub_channels("onthedot:{shop}:to:*"))  # and listens


async def _hears(server: valkey.Server, session: str) -> None:
    with redis.Redis.from_url(server.url) as client:
        await until(lambda: client.pubsub_numsub(f"onthedot:{{shop}}:to:{session}")[0][1] == 1)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The answer to an ask that waits comes later than what was handed out: they take different connections."""
    answered, turn = asyncio.Event(), RedisStore.turn

    async def slow(self: RedisStore, session: str, outcomes: Sequence[Outcome], ask: Ask | None) -> Turn:
        said = await turn(self, session, outcomes, ask)
        if said.claimed is not None and not said.claimed.fence:
            await asyncio.wait_for(answered.wait(), 10)
        return said

    monkeypatch.setattr(RedisStore, "turn", slow)
    return answered


async def test_what_comes_before_the_answer_is_not_lost(server: valkey.Server, answered: asyncio.Event) -> None:
    app = App("shop", store=server.url, poll_interval=3600)
    ran: list[str] = []

    @app.task
    async def send() -> None:
        ran.append("ran")

    async with app.running():
        worker = app._core.worker
        assert worker is not None
        await _hears(server, worker.session)
        await _waits(server)
        handle = await send.enqueue()
        assert (await app.get(handle.uuid)).state == "running"
        assert ran == []
        answered.set()
        await handle.result(timeout=10)
    assert ran == ["ran"]


async def test_nor_is_its_cancel(server: valkey.Server, answered: asyncio.Event) -> None:
    """A beat would tell of it, too: after ten seconds."""
    app, ran = App("shop", store=server.url, poll_interval=3600), list[str]()

    @app.task
    async def send() -> None:
        await asyncio.sleep(1)
        ran.append("ran")

    async with app.running():
        worker = app._core.worker
        assert worker is not None
        await _hears(server, worker.session)
        await _waits(server)
        handle = await send.enqueue()
        assert (await app.get(handle.uuid)).state == "running"
        hinted, heard = worker._hinted, list[str]()

        def listened(hint: Hint) -> None:
            hinted(hint)
            heard.extend(hint.cancel)

        worker._hinted = listened  # type: ignore[method-assign]
        await handle.cancel()
        await until(lambda: heard == [handle.uuid])
        answered.set()
        with pytest.raises(TaskCancelled):
            await handle.result(timeout=10)
    assert ran == []


async def test_what_begins_is_not_counted_as_waiting(server: valkey.Server) -> None:
    """By the process that has added it, and would look again after a turn."""
    app, gate, begun = App("shop", store=server.url, poll_interval=3600), asyncio.Event(), list[int]()

    @app.task
    async def send(number: int) -> None:
        begun.append(number)
        await gate.wait()

    gate.set()
    app._core.counts.watched = True
    async with app.running():
        worker = app._core.worker
        assert worker is not None
        for number in range(3):  # it has heard that it listens, and waits again
            await (await send.enqueue(number)).result(timeout=SOON)
            await _waits(server)
        await until(lambda: worker.quiet.is_set())
        await until(lambda: app._core.counts.now().ready == 0)
        gate.clear()
        await send.enqueue(3)
        await until(lambda: begun == [0, 1, 2, 3])
        await until(lambda: app._core.counts.now().ready == 0)
        gate.set()


async def test_what_comes_while_notes_are_written_runs_once(
    server: valkey.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written between the making of an ask and its turn: the answer will say the same as the message."""
    app, note = App("shop", store=server.url, poll_interval=3600, stop_timeout=0), RedisStore.note
    go, over, said, ran, handles = threading.Event(), threading.Event(), threading.Event(), list[str](), list[Any]()

    @app.task(timeout=0.05)
    def stubborn() -> None:
        """A thread cannot be ended: its run is over, its slot is taken, and it still says how far it is."""
        over.wait(20)
        current_task().progress(1)
        go.wait(20)
        current_task().progress(2)
        said.set()

    @app.task
    async def send() -> None:
        ran.append("ran")

    async def slow(self: RedisStore, notes: Sequence[Note]) -> Sequence[Lease]:
        worker = app._core.worker
        assert worker is not None
        if not go.is_set():  # in time for the second look
            go.set()
            await asyncio.to_thread(said.wait, 20)
        elif not handles:
            handles.append(await send.enqueue())
            assert (await app.get(handles[0].uuid)).state == "running"
            await until(lambda: ran or worker._handed is not None)
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


async def test_what_a_server_without_its_last_moments_hands_out_comes_back(
    server: valkey.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It believes in an ask of long ago, to whose number the worker does not listen any more."""
    app, turn, gate = App("shop", store=server.url, poll_interval=3600), RedisStore.turn, asyncio.Event()
    gate.set()

    async def gated(self: RedisStore, session: str, outcomes: Sequence[Outcome], ask: Ask | None) -> Turn:
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
        worker = app._core.worker
        assert worker is not None
        await _hears(server, worker.session)
        handle = await send.enqueue(4)
        assert (await app.get(handle.uuid)).state == "running", "it was handed out"
        gate.set()
        assert await handle.result(timeout=SOON) == 4


@pytest.mark.parametrize("comes", ["before the answer", "while it runs", "after its end"])
async def test_what_is_told_twice_begins_once_and_does_not_go_back(server: valkey.Server, comes: str) -> None:
    app, gate, ran = App("shop", store=server.url, poll_interval=3600), asyncio.Event(), list[str]()

    @app.task
    async def send() -> None:
        ran.append("ran")
        await gate.wait()

    async with app.running():
        worker, held, asking = app._core.worker, list[Hint](), asyncio.Event()
        assert worker is not None
        hinted, turn = worker._hinted, worker._store.turn

        def later(hint: Hint) -> None:
            held.append(hint) if hint.held is not None else hinted(hint)

        async def asked(*args: Any) -> Turn:
            if not asking.is_set():
                asking.set()
                await until(lambda: held)
                if comes == "before the answer":
                    hinted(held[0])
            return await turn(*args)

        await _hears(server, worker.session)
        await _waits(server)
        await until(lambda: worker.quiet.is_set())
        worker._hinted, worker._store.turn = later, asked  # type: ignore[method-assign]
        worker.wake.set()
        await asking.wait()
        (row,) = await app._core.store.changes("", 1)
        handle = await send.enqueue()
        await until(lambda: ran)
        if comes == "while it runs":
            hinted(held[0])
        gate.set()
        await handle.result(timeout=SOON)
        if comes == "after its end":
            hinted(held[0])
        await until(lambda: worker.quiet.is_set() and not worker._also)
        rows = [msgspec.json.decode(said) for _, said in await app._core.store.changes(row[0], 100)]
    assert [state for moves in rows for _, _, _, state in moves] == ["ready", "running", "succeeded"]
    assert ran == ["ran"]


async def test_who_has_not_beaten_for_a_lease_asks_before_it_begins(server: valkey.Server) -> None:
    """It may have been stopped, and others may have it by now."""
    app, ran = App("shop", store=server.url, poll_interval=3600), list[int]()

    @app.task
    async def send() -> None:
        ran.append(worker._number)

    async with app.running():
        worker, held = app._core.worker, list[int]()
        assert worker is not None
        hinted = worker._hinted

        def after_a_stop(hint: Hint) -> None:
            before, worker._keeper._answered = worker._keeper._answered, 0.0
            hinted(hint)
            worker._keeper._answered = before
            if hint.held is not None:
                held.append(len(worker.runner.runs))

        for _ in range(3):  # it has heard that it listens, and waits again
            await (await send.enqueue()).result(timeout=SOON)
            await _waits(server)
        worker._hinted = after_a_stop  # type: ignore[method-assign]
        await until(lambda: worker.quiet.is_set())
        await (await send.enqueue()).result(timeout=SOON)
        await until(lambda: held)
    assert (held, len(ran)) == ([0], 4)


def test_who_was_stopped_until_its_death_does_not_begin_what_it_was_handed(
    server: valkey.Server, tmp_path: Path
) -> None:
    """The message lies in its socket, and others have run it since."""
    url, book = f"{server.url}?lease=1", Ledger(tmp_path / "ledger")
    with shop.app.override(store=url), fleet(url, tmp_path / "ledger", 1) as workers:
        shop.slow.delay(0).result(timeout=SOON)  # it knows how these are done
        wait_until(lambda: _waiting(server) == 1)
        stopped = workers.workers[0]
        stopped.send_signal(signal.SIGSTOP)
        try:
            handle = shop.slow.delay(0)
            assert handle.info().state == "running", "it was handed out"
            workers.workers.append(workers._start())
            handle.result(timeout=SOON)
        finally:
            stopped.send_signal(signal.SIGCONT)
        wait_until(lambda: "was declared dead by the store" in workers.log.read_text())
        wait_until(lambda: _waiting(server) == 2)
    begun = [entry.pid for entry in book.entries() if entry.what == "begin"]
    book.close()
    assert begun == [worker.pid for worker in workers.workers]


def _waiting(server: valkey.Server) -> int:
    with redis.Redis.from_url(server.url) as client:
        return int(client.hlen("onthedot:{shop}:waiting"))
