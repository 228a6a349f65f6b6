"""Moving between stores, killed before and after every single call: none lost, none twice, every window once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onthedot import App, IntervalSchedule
from onthedot.clock import ManualClock
from onthedot.errors import StoreRefused
from onthedot.operations import Operations
from onthedot.operations.move import Move, Moved, counted
from onthedot.operations.move_schedules import move_schedules
from onthedot.stores.contract import CLIENT_LEASE, Fire, Limit, NewTask, Schedule, Store
from onthedot.stores.memory import MemoryStore
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.redis import RedisStore
from onthedot.stores.sqlite import SqliteStore
from tests.contract.steps import LEASE, Worker, add, limit, look, task
from tests.services import valkey
from tests.services.postgres import Service
from tests.waiting import every_chance, until

Make = Callable[[ManualClock, Path, str], Store]
STORES: dict[str, Make] = {
    "memory": lambda clock, folder, name: MemoryStore(clock),
    "sqlite": lambda clock, folder, name: SqliteStore(folder / f"{name}.db", clock),
    "redis": lambda clock, folder, name: RedisStore(valkey.url(), clock, name),
    "postgres": lambda clock, folder, name: PostgresStore(Service.current.url, clock, name),
}
WAYS = [
    "memory-memory",
    "memory-sqlite",
    "sqlite-sqlite",
    "sqlite-memory",
    "sqlite-postgres",
    "postgres-sqlite",
    "sqlite-redis",
    "redis-postgres",
]
CALLS = ["source.lift", "target.adopt", "source.turn", "target.lift", "target.turn", "source.put"]
WINDOW = 1_000  # ms


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """With the server that it needs, and nothing left in it."""
    way: str = request.param
    service: Service | None = request.getfixturevalue("postgres") if "postgres" in way else None
    yield way
    for name in ("one", "other"):
        if service is not None:
            Service.current.clean(name)
        if "redis" in way:
            valkey.forget(RedisStore(valkey.url(), ManualClock(), name).prefix)


class Killed(BaseException):
    """The mover's process has ended."""


class Life:
    """Of a mover: at which of its calls it is killed (by its number, or by its name), and what others do meanwhile."""

    def __init__(self, call: int | str = 0, when: str = "before") -> None:
        self.call = call
        self.when = when
        self.meanwhile: Callable[[], Any] | None = None
        self.calls = 0

    def watched(self, store: Store, side: str) -> Any:
        return Watched(store, side, self)

    def check(self, name: str, when: str) -> None:
        if self.call in (self.calls, name) and self.when == when:
            raise Killed


class Watched:
    """A store, as a mover sees it that is killed at a call: before it is done, or before it is answered."""

    def __init__(self, store: Store, side: str, life: Life) -> None:
        self._store, self._side, self._life = store, side, life

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any) -> Any:
            life, name = self._life, f"{self._side}.{verb}"
            life.calls += 1
            if life.meanwhile is not None:
                await life.meanwhile()
            life.check(name, "before")
            answer = await getattr(self._store, verb)(*args)
            life.check(name, "after")
            return answer

        return call


class World:
    """Two stores, a worker on each, and what they have run."""

    def __init__(self, clock: ManualClock, source: Store, target: Store) -> None:
        self.clock, self.source, self.target = clock, source, target
        self.workers = [Worker(source, "source"), Worker(target, "target")]
        self.ran: Counter[str] = Counter()
        self.where: dict[str, str] = {}
        self.windows: Counter[int] = Counter()

    async def move(self, life: Life | None = None, **how: bool) -> Moved:
        life = life or Life()
        return await Move(life.watched(self.source, "source"), life.watched(self.target, "target"), "there").run(**how)

    async def back(self, life: Life | None = None, **how: bool) -> Moved:
        """The other way."""
        life = life or Life()
        return await Move(life.watched(self.target, "source"), life.watched(self.source, "target"), "here").run(**how)

    async def meanwhile(self) -> None:
        """Time goes on between two calls of the mover, and so do the workers."""
        self.clock.advance(150)
        await self.work()

    async def work(self) -> None:
        """All that can be run is run, and kept no longer: what has vanished cannot be recognized."""
        for worker in self.workers:
            while True:
                claimed = await worker.claim("a", "b")
                for schedule in claimed.schedules:
                    await self._fire(worker.store, schedule)
                for record in claimed.tasks:
                    self.ran[record.uuid] += 1
                    self.where[record.uuid] = worker.name
                await worker.settle(*(worker.done(record.uuid, keep=0) for record in claimed.tasks))
                await worker.settle(*(worker.cancelled(record.uuid) for record in claimed.chores))
                if not (claimed.tasks or claimed.schedules or claimed.chores):
                    break

    async def _fire(self, store: Store, schedule: Schedule) -> None:
        assert schedule.next_at is not None
        new = NewTask(f"{schedule.name}-{schedule.next_at}", "a", b"{}")
        fire = Fire(schedule.name, schedule.rev, (new,), schedule.next_at + WINDOW, schedule.next_at)
        if list(await store.fire([fire])) == [True]:
            self.windows[schedule.next_at] += 1


@asynccontextmanager
async def world(way: str, folder: Path) -> AsyncIterator[World]:
    clock = ManualClock()
    kinds = way.split("-")
    made = World(clock, STORES[kinds[0]](clock, folder, "one"), STORES[kinds[1]](clock, folder, "other"))
    await made.source.open()
    await made.target.open()
    try:
        for worker in made.workers:
            await worker.beat(LEASE)
        yield made
    finally:
        await made.source.shut()
        await made.target.shut()


async def fill(made: World) -> list[str]:
    """Ready, later, laned, with a key, tried before: of every kind some."""
    store, worker = made.source, made.workers[0]
    await limit(store, "a/k", cap=1)
    now = int(made.clock.now())
    await store.put([Schedule("tick", b"{}", "", now + WINDOW)], [])
    retried = await add(store, *(task("b", f"retried{n}") for n in range(2)))
    assert await worker.runs("b") == retried
    assert await worker.settle(*(worker.retry(uuid, 1_500) for uuid in retried)) == ["ok", "ok"]
    uuids = await add(
        store,
        *(task("a", f"ready{n}") for n in range(3)),
        *(task("a", f"later{n}", after=700 * n) for n in range(1, 6)),
        *(task("a", f"laned{n}", lane="a/k") for n in range(3)),
        task("a", "keyed", unique="k", clash="replace"),
        task("a", "lasting", expires=60_000),
    )
    return [*retried, *uuids]


async def tried(way: str, folder: Path, life: Life, *, busy: bool = True, late: int = 0) -> int:
    """One life: killed, or not; then a second mover to the end. Answers how many calls the first one made.

    busy: workers have their turn, and time goes on, before each of its calls; else only when it is dead.
    """
    async with world(way, folder) as made:
        uuids = await fill(made)
        life.meanwhile = made.meanwhile if busy else None
        made.clock.advance(late)
        try:
            await made.move(life)
        except Killed:
            await made.work()
            made.clock.advance(CLIENT_LEASE)
            await made.work()
            moved = await made.move()
            assert (moved.unclear, moved.kept, moved.busy) == ([], {}, 0)
        made.clock.advance(10_000)
        await made.work()
        assert {uuid: made.ran[uuid] for uuid in uuids} == dict.fromkeys(uuids, 1)
        assert set(made.ran.values()) == {1}
        assert set(made.windows.values()) == {1}
        fired = sorted(made.windows)
        assert fired == list(range(fired[0], fired[0] + WINDOW * len(fired), WINDOW)), "no window is missing"
        assert fired[-1] > made.clock.now() - WINDOW, "up to now"
        left = {state for (_, state), count in (await made.source.tally()).items() if count}
        assert left <= {"cancelled"}, "nothing is left here but what was moved"
        (schedule,) = (await made.source.state())[0]
        assert (schedule.paused, schedule.next_at) == (True, None)
        return life.calls


@pytest.mark.parametrize("way", WAYS, indirect=True)
async def test_everything_runs_once(way: str, tmp_path: Path) -> None:
    assert await tried(way, tmp_path, Life()) > 20


async def test_a_window_may_come_at_every_call(tmp_path: Path) -> None:
    for late in range(0, WINDOW, 50):
        await tried("memory-memory", tmp_path, Life(), late=late)


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_every_call(when: str, busy: bool, tmp_path: Path) -> None:
    calls = await tried("memory-memory", tmp_path, Life(), busy=busy)
    for number in range(1, calls + 1):
        await tried("memory-memory", tmp_path, Life(number, when), busy=busy)


@pytest.mark.parametrize(
    ("way", "call"),
    [
        *product(WAYS[1:4], CALLS),
        *(("sqlite-postgres" if call.startswith("target") else "postgres-sqlite", call) for call in CALLS),
    ],
    indirect=["way"],
)
async def test_killed_before_the_answer(way: str, call: str, tmp_path: Path) -> None:
    await tried(way, tmp_path, Life(call, "after"))


# -- there and back


async def to_and_fro(way: str, folder: Path, leg: int, life: Life) -> int:
    """There, back and there again, killed in one of them. Answers how many calls that one made."""
    async with world(way, folder) as made:
        uuids = await fill(made)
        life.meanwhile = made.meanwhile
        for number, move in enumerate((made.move, made.back, made.move)):
            try:
                moved = await move(life if number == leg else None)
            except Killed:
                made.clock.advance(CLIENT_LEASE)
                moved = await move()
            assert (moved.unclear, moved.kept, moved.busy, moved.arriving) == ([], {}, 0, 0)
        made.clock.advance(10_000)
        await made.work()
        assert {uuid: made.ran[uuid] for uuid in uuids} == dict.fromkeys(uuids, 1)
        assert set(made.ran.values()) == set(made.windows.values()) == {1}
        assert {state for (_, state), count in (await made.source.tally()).items() if count} <= {"cancelled"}
        return life.calls


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("leg", [0, 1, 2])
async def test_to_and_fro_killed_at_every_call(leg: int, when: str, tmp_path: Path) -> None:
    calls = await to_and_fro("memory-memory", tmp_path, leg, Life())
    for number in range(1, calls + 1):
        await to_and_fro("memory-memory", tmp_path, leg, Life(number, when))


@pytest.mark.parametrize("way", WAYS[1:], indirect=True)
async def test_to_and_fro(way: str, tmp_path: Path) -> None:
    await to_and_fro(way, tmp_path, 1, Life("target.adopt", "after"))


async def test_what_waits_goes_to_and_fro_as_it_is(tmp_path: Path) -> None:
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1", b"body", after=100))
        before = await look(made.source, "t1")
        for move, store in ((made.move, made.target), (made.back, made.source)) * 3:
            assert (await move()).tasks == 1
            found = await look(store, "t1")
            assert found == replace(before, seq=found.seq, past=found.past)
        assert found.past.hops == 6
        assert {state: n for (_, state), n in (await made.source.tally()).items() if n} == {"scheduled": 1}


async def test_two_moves_against_each_other(tmp_path: Path) -> None:
    """The one has its whole life between two calls of the other."""
    for number in range(1, 40):
        async with world("memory-memory", tmp_path) as made:
            uuids, life = await fill(made), Life()

            async def against(life: Life = life, number: int = number, made: World = made) -> None:
                if life.calls == number:
                    await Move(made.target, made.source, "here", seconds=_fast()).run()

            life.meanwhile = against
            await made.move(life)
            made.clock.advance(CLIENT_LEASE)
            await made.move()
            made.clock.advance(10_000)
            await made.work()
            assert {uuid: made.ran[uuid] for uuid in uuids} == dict.fromkeys(uuids, 1), f"at call {number}"
            assert set(made.windows.values()) == {1}


def _fast(step: float = 8) -> Callable[[], float]:
    """So that nobody waits for long for what another mover has, which stands still meanwhile."""
    passed = count(step=step)
    return lambda: next(passed)


async def test_what_is_not_put_down_yet_is_not_moved_on(tmp_path: Path) -> None:
    """A → B was killed; B → C leaves what A still has, until A → B is finished."""
    async with world("memory-memory", tmp_path) as made:
        third = MemoryStore(made.clock)
        uuids = await add(made.source, *(task("a", f"t{n}", after=100) for n in range(3)))
        await add(made.target, task("a", "own", after=100))
        with pytest.raises(Killed):
            await made.move(Life("target.adopt", "after"))
        made.clock.advance(CLIENT_LEASE)
        moved = await Move(made.target, third, "third").run()
        assert (moved.tasks, moved.arriving) == (1, 3)
        assert (await made.move()).tasks == 3
        moved = await Move(made.target, third, "third").run()
        assert (moved.tasks, moved.arriving) == (3, 0)
        made.workers.append(Worker(third, "third"))
        await made.workers[-1].beat(LEASE)
        made.clock.advance(100)
        await made.work()
        assert made.where == dict.fromkeys([*uuids, "own"], "third")


async def test_what_a_lost_store_has_left_is_released(tmp_path: Path) -> None:
    """And if that store is found again after all, it gives nothing a second time."""
    async with world("memory-memory", tmp_path) as made:
        third = MemoryStore(made.clock)
        await add(made.source, task("a", "t1", after=100))
        with pytest.raises(Killed):
            await made.move(Life("target.adopt", "after"))
        made.clock.advance(CLIENT_LEASE)
        moved = await Move(made.target, third, "third").run(release=True)
        assert (moved.tasks, moved.arriving) == (1, 0)
        await made.move()
        made.workers.append(Worker(third, "third"))
        await made.workers[-1].beat(LEASE)
        made.clock.advance(100)
        await made.work()
        assert (made.ran, made.where) == ({"t1": 1}, {"t1": "third"})


async def test_a_mover_that_was_stopped_for_longer_than_its_lease(tmp_path: Path) -> None:
    """Another one has moved all, it has run, and nothing is known of it any more."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"))
        life = Life()

        class Stopped:
            """After its lift."""

            def __getattr__(self, verb: str) -> Any:
                async def call(*args: Any) -> Any:
                    answer = await getattr(made.source, verb)(*args)
                    if verb == "lift":
                        made.clock.advance(CLIENT_LEASE)
                        await made.move()
                        await made.work()
                    return answer

                return call

        slow: Any = Stopped()
        await Move(slow, life.watched(made.target, "target"), "there", seconds=lambda: made.clock.now() / 1000).run()
        await made.move()
        await made.work()
        assert made.ran == {"t1": 1}


@pytest.mark.parametrize("patient", [True, False])
async def test_what_a_dead_mover_has_there_is_waited_for(patient: bool, tmp_path: Path) -> None:
    """It was killed between taking and putting down there; its lease is not over yet."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"), task("a", "t2"))
        with pytest.raises(Killed):
            await made.move(Life("target.lift", "after"))
        life, said = Life(), list[str]()

        async def second() -> None:
            made.clock.advance(1_000 if patient else 0)

        life.meanwhile = second
        there = life.watched(made.target, "target")
        moving = Move(made.source, there, "there", seconds=_fast(0.1 if patient else 8))
        moving.say = said.append
        moved = await moving.run()
        assert (moved.tasks, moved.busy) == ((2, 0) if patient else (0, 2))
        assert said == ["waiting for 2 tasks that another move has, 15 s at most"]
        await made.work()
        assert made.ran == ({"t1": 1, "t2": 1} if patient else {})


async def test_revived_where_it_was_cancelled_on_its_way(tmp_path: Path) -> None:
    """The copy was dropped there: it may come again."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"))
        with pytest.raises(Killed):
            await made.move(Life("target.adopt", "after"))
        made.clock.advance(CLIENT_LEASE)
        assert await made.workers[0].runs() == []  # and the dead mover is noticed
        await Operations(made.source, "somebody").cancel("t1")
        await made.move()
        assert list(await made.target.get(["t1"])) == [None]
        assert list(await made.source.revive(["t1"])) == ["t1"]
        assert (await made.move()).tasks == 1
        await made.work()
        assert (made.ran, made.where) == ({"t1": 1}, {"t1": "target"})


# -- what moves, and what does not


@pytest.mark.parametrize("way", WAYS, indirect=True)
async def test_what_a_task_keeps(way: str, tmp_path: Path) -> None:
    async with world(way, tmp_path) as made:
        uuids = await fill(made)
        before = {uuid: await look(made.source, uuid) for uuid in uuids}
        assert (await counted(made.source))[0] == {"a": 13, "b": 2}
        moved = await made.move()
        assert (moved.tasks, moved.schedules, moved.running, moved.stopped) == (15, ["tick"], 0, False)
        for uuid in uuids:
            here, there, was = await look(made.source, uuid), await look(made.target, uuid), before[uuid]
            assert here.state == "cancelled"
            assert b"moved to there" in (here.past.error or b"")
            assert there == replace(was, seq=there.seq, state=there.state, past=there.past)
            assert (there.attempt, there.past.started, there.past.error) == (
                was.attempt,
                was.past.started,
                was.past.error,
            )
        assert (await look(made.target, "retried0")).attempt == 2
        assert await made.move() == Moved(schedules=[]), "and nothing is left to do"


async def test_what_runs_stays_until_it_comes_back(tmp_path: Path) -> None:
    async with world("memory-memory", tmp_path) as made:
        worker = made.workers[0]
        stays, comes_back = await add(made.source, task("a", "stays"), task("a", "back"))
        assert await worker.runs("a") == [stays, comes_back]
        moved = await made.move()
        assert (moved.tasks, moved.running) == (0, 2)
        moving = asyncio.create_task(made.move(wait=True))
        await every_chance()
        assert not moving.done()
        assert await worker.settle(worker.done(stays), worker.retry(comes_back)) == ["ok", "ok"]
        moved = await moving
        assert (moved.tasks, moved.running) == (1, 0)
        assert await made.workers[1].runs("a") == [comes_back]


async def test_a_key_that_is_taken_there(tmp_path: Path) -> None:
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "mine", unique="k", clash="replace"), task("a", "other"))
        await add(made.target, task("a", "theirs", b"body", unique="k"))
        moved = await made.move()
        assert (moved.tasks, moved.kept) == (1, {"mine": "theirs"})
        assert (await look(made.target, "theirs")).body == b"body"
        await made.work()
        assert made.where == {"mine": "source", "other": "target", "theirs": "target"}


async def test_the_same_uuid_is_there_already(tmp_path: Path) -> None:
    """Two are one: the first stands."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "same", b"2"))
        await add(made.target, task("a", "same", b"1"))
        assert (await made.move()).tasks == 1
        await made.work()
        assert (made.ran, made.where) == ({"same": 1}, {"same": "target"})


async def test_the_operators_limits_move_first(tmp_path: Path) -> None:
    async with world("memory-memory", tmp_path) as made:
        await limit(made.source, "a", paused=True, reason="stock", by="operator")
        await limit(made.source, "b", cap=3, by="operator")
        await limit(made.source, "c", cap=3)
        await limit(made.target, "b", cap=7, by="operator")
        await add(made.source, task("a", "held"))
        moved = await made.move()
        assert (moved.limits, moved.tasks) == (["a"], 1)
        limits = {each.name: each for each in (await made.target.state())[1]}
        assert limits == {
            "a": Limit("a", paused=True, reason="stock", by="operator"),
            "b": Limit("b", cap=7, by="operator"),
        }
        await made.work()
        assert made.ran == {}


async def test_a_cancel_on_the_way_holds(tmp_path: Path) -> None:
    """Told to the side that it is leaving, between any two calls."""
    both_ways: set[bool] = set()
    for number in range(1, 25):
        async with world("memory-memory", tmp_path) as made:
            await add(made.source, task("a", "t1", after=500))
            life = Life()

            async def cancel(life: Life = life, number: int = number, made: World = made) -> None:
                if life.calls == number:
                    await Operations(made.source, "somebody").cancel("t1")

            life.meanwhile = cancel
            await made.move(life)
            made.clock.advance(500)
            await made.work()
            heard = (await look(made.source, "t1")).past.cancel
            both_ways.add(heard)
            assert made.ran == ({} if heard else {"t1": 1}), f"at call {number}"
    assert both_ways == {True, False}


async def test_not_onto_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    one, alias = SqliteStore(tmp_path / "a.db", clock), SqliteStore(tmp_path / "a.db", clock)
    await one.open()
    await alias.open()
    try:
        (uuid,) = await add(one, task())
        with pytest.raises(StoreRefused, match="a move from a store to itself"):
            await Move(one, alias, "there").run()
        assert (await look(one, uuid)).state == "ready"
        assert (await one.state())[2] == {}, "and no trace of the question"
    finally:
        await one.shut()
        await alias.shut()


async def test_what_is_left_by_a_move_to_elsewhere_is_not_touched(tmp_path: Path) -> None:
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"), task("a", "t2"))
        with pytest.raises(Killed):  # before the copies are put down
            await made.move(Life("target.lift"))
        made.clock.advance(CLIENT_LEASE)
        elsewhere = Move(made.source, made.target, "the same store, by another name")
        assert sorted((await elsewhere.run()).unclear) == ["t1", "t2"]
        await made.work()
        assert made.ran == {}
        elsewhere = Move(made.source, made.target, "the same store, by another name")
        moved = await elsewhere.run(release=True)
        assert (moved.tasks, moved.unclear) == (2, [])
        await made.work()
        assert made.ran == {"t1": 1, "t2": 1}


# -- schedules


def schedule(**fields: Any) -> Schedule:
    return replace(Schedule("tick", b'{"every": 1}', "digest", 5_000, last_at=4_000, runs=4), **fields)


async def both(*schedules: Schedule | None) -> tuple[Store, Store]:
    stores = [MemoryStore(ManualClock()), MemoryStore(ManualClock())]
    for store, each in zip(stores, schedules, strict=True):
        if each is not None:
            await store.put([each], [])
    return stores[0], stores[1]


async def the(store: Store) -> Schedule:
    (found,) = (await store.state())[0]
    return replace(found, rev=0)


@pytest.mark.parametrize("declared", ["", "digest"])
@pytest.mark.parametrize("paused", [True, False])
async def test_a_schedule_goes_on_there_as_it_was(declared: str, paused: bool) -> None:
    source, target = await both(schedule(declared=declared, paused=paused), None)
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(declared=declared, paused=paused)
    assert await the(source) == schedule(declared=declared, paused=True, next_at=None)
    assert await move_schedules(source, target) == ([], [])
    await source.put([schedule(declared=declared, next_at=9_000)], [])  # by a worker that starts here again
    assert (await the(source)).paused


async def test_one_that_is_there_already_goes_on_from_where_either_has_come_to() -> None:
    source, target = await both(schedule(next_at=7_000, last_at=6_000, runs=6), schedule())
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(next_at=7_000, last_at=6_000, runs=6)
    source, target = await both(schedule(), schedule(next_at=9_000, paused=True))
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(next_at=9_000), "it runs here, so it runs there"


async def test_what_comes_back_is_newer_than_what_is_left_there() -> None:
    """Its rule may have changed where it was."""
    source, target = await both(schedule(rule=b"new", declared="new", runs=7), schedule(next_at=None, paused=True))
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(rule=b"new", declared="new", runs=7)


async def test_one_that_was_only_laid_is_not_moved_back() -> None:
    """Its pause is not an operator's, and the other one goes on."""
    source, target = await both(schedule(), None)
    life = Life("source.put")
    with pytest.raises(Killed):
        await move_schedules(life.watched(source, "source"), target)
    assert await move_schedules(target, source) == ([], ["tick"])
    assert await the(source) == schedule()
    third = MemoryStore(ManualClock())
    assert await move_schedules(target, third, release=True) == (["tick"], [])
    assert await the(third) == schedule(), "if the source is lost"
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule()


async def test_a_pause_by_an_operator_there_stays() -> None:
    """Killed before the one here is paused, too."""
    source, target = await both(schedule(), None)
    with pytest.raises(Killed):
        await move_schedules(Life(5).watched(source, "source"), target)
    assert ((await the(source)).paused, await the(target)) == (False, schedule())
    (found,) = (await target.state())[0]
    await target.put([replace(found, paused=True)], [])
    assert await move_schedules(source, target) == (["tick"], [])
    assert ((await the(source)).paused, (await the(target)).paused) == (True, True)


async def test_another_rule_under_the_same_name_stands() -> None:
    source, target = await both(schedule(), schedule(rule=b"new", declared="new", next_at=6_000))
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(rule=b"new", declared="new", next_at=6_000)
    assert (await the(source)).paused


async def test_one_that_never_fires_again_moves_too() -> None:
    source, target = await both(schedule(next_at=None), None)
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(next_at=None)
    assert await move_schedules(source, target) == ([], [])


@pytest.mark.parametrize("to", ["memory", "sqlite"])
async def test_a_declared_schedule_fires_where_it_was_moved_to(to: str, tmp_path: Path) -> None:
    """With the engine itself: the same code at work on both sides, before and after."""
    clock, fired = ManualClock(), list[tuple[str, float]]()
    begin = clock.now()
    apps: list[App] = []
    for name, url in (
        ("here", "memory://"),
        ("there", "memory://" if to == "memory" else f"sqlite:///{tmp_path}/b.db"),
    ):
        app = App("shop", store=url, stop_timeout=0)

        @app.schedule(IntervalSchedule(10))
        async def tick(name: str = name) -> None:
            fired.append((name, clock.now() - begin))

        apps.append(app)
    here, there = apps
    with here.override(clock=clock), there.override(clock=clock):
        async with there, here.running():
            for n in range(1, 3):
                clock.advance(10_000)
                await until(lambda n=n: len(fired) == n)
            clock.advance(5_000)
            moved = await Move(here._core.store, there._core.store, "there").run()
            assert moved.schedules == ["tick"]
            async with there.running():
                for n in range(3, 6):
                    await until(lambda: all(app._core.worker and app._core.worker.quiet.is_set() for app in apps))
                    clock.advance(10_000 if n > 3 else 5_000)
                    await until(lambda n=n: len(fired) == n)
                await every_chance()
    assert fired == [("here", 10_000), ("here", 20_000), ("there", 30_000), ("there", 40_000), ("there", 50_000)]
