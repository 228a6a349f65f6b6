"""Two stores, a worker on each, and a move that is killed at a chosen call."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from onthedot.clock.manual import ManualClock
from onthedot.operations.move import Move, MoveResult
from onthedot.stores.contract import CLIENT_LEASE, FireRequest, NewTask, Schedule, Store
from onthedot.stores.memory import MemoryStore
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.redis import RedisStore
from onthedot.stores.sqlite import SqliteStore
from tests.contract.steps import LEASE, Worker, add, limit, task
from tests.support.services import valkey
from tests.support.services.postgres import Service

Make = Callable[[ManualClock, Path, str], Store]
STORES: dict[str, Make] = {
    "memory": lambda clock, folder, name: MemoryStore(clock),
    "sqlite": lambda clock, folder, name: SqliteStore(folder / f"{name}.db", clock),
    "redis": lambda clock, folder, name: RedisStore(valkey.url(), clock, name),
    "postgres": lambda clock, folder, name: PostgresStore(Service.current.url, clock, name),
}
DIRECTIONS = [
    "memory-memory",
    "memory-sqlite",
    "sqlite-sqlite",
    "sqlite-memory",
    "sqlite-postgres",
    "postgres-sqlite",
    "sqlite-redis",
    "redis-postgres",
]
CALLS = [
    "source.lift",
    "target.adopt",
    "source.turn",
    "target.lift",
    "target.turn",
    "source.put_schedules",
    "source.put_limits",
]
WINDOW = 1_000  # ms


class Killed(BaseException):
    """Ends a move like the death of its process."""


class Life:
    """At which call a move is killed, by number or by name, and what happens before each of its calls."""

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
    """A store that kills its caller at a call: before the call, or before its answer."""

    def __init__(self, store: Store, side: str, life: Life) -> None:
        self._store = store
        self._side = side
        self._life = life

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._store, verb)  # it has no more abilities than its store

        async def call(*args: Any, **options: Any) -> Any:
            life = self._life
            name = f"{self._side}.{verb}"
            life.calls += 1
            if life.meanwhile is not None:
                await life.meanwhile()
            life.check(name, "before")
            answer = await method(*args, **options)
            life.check(name, "after")
            return answer

        return call


class World:
    """Two stores, a worker on each, and the tasks that these have run."""

    def __init__(self, clock: ManualClock, source: Store, target: Store) -> None:
        self.clock = clock
        self.source = source
        self.target = target
        self.workers = [Worker(source, "source"), Worker(target, "target")]
        self.ran: Counter[str] = Counter()
        self.where: dict[str, str] = {}
        self.windows: Counter[int] = Counter()

    async def move(self, life: Life | None = None, **how: bool) -> MoveResult:
        life = life or Life()
        return await Move(life.watched(self.source, "source"), life.watched(self.target, "target"), "there").run(**how)

    async def back(self, life: Life | None = None, **how: bool) -> MoveResult:
        """Move in the opposite direction."""
        life = life or Life()
        return await Move(life.watched(self.target, "source"), life.watched(self.source, "target"), "here").run(**how)

    async def meanwhile(self) -> None:
        """Advance the clock and let the workers run, between two calls of the move."""
        self.clock.advance(150)
        await self.work()

    async def work(self) -> None:
        """Run all due tasks without retention: a task that would run again could not be recognized."""
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
        fire = FireRequest(schedule.name, schedule.rev, (new,), schedule.next_at + WINDOW, schedule.next_at)
        if list(await store.fire([fire])) == [True]:
            self.windows[schedule.next_at] += 1


@asynccontextmanager
async def world(direction: str, folder: Path) -> AsyncIterator[World]:
    clock = ManualClock()
    kinds = direction.split("-")
    made = World(clock, STORES[kinds[0]](clock, folder, "one"), STORES[kinds[1]](clock, folder, "other"))
    await made.source.open()
    await made.target.open()
    try:
        for worker in made.workers:
            await worker.heartbeat(LEASE)
        yield made
    finally:
        await made.source.close()
        await made.target.close()


async def fill(made: World) -> list[str]:
    """Add tasks of every kind: ready, scheduled, with a lane, with a unique key, retried."""
    store = made.source
    worker = made.workers[0]
    await limit(store, "a/k", cap=1)
    now = int(made.clock.now())
    await store.put_schedules([Schedule("tick", b"{}", "", now + WINDOW)])
    retried = await add(store, *(task("b", f"retried{n}") for n in range(2)))
    assert await worker.runs("b") == retried
    assert await worker.settle(*(worker.retry(uuid, 1_500) for uuid in retried)) == ["ok", "ok"]
    uuids = await add(
        store,
        *(task("a", f"ready{n}") for n in range(3)),
        *(task("a", f"later{n}", after=700 * n) for n in range(1, 6)),
        *(task("a", f"laned{n}", lane="a/k") for n in range(3)),
        task("a", "keyed", unique="k", on_conflict="replace"),
        task("a", "lasting", expires=60_000),
    )
    return [*retried, *uuids]


async def tried(direction: str, folder: Path, life: Life, *, busy: bool = True, late: int = 0) -> int:
    """Move, and after a kill move again. Return the number of calls of the first move.

    busy: workers have their turn, and time goes on, before each of its calls; else only when it is dead.
    """
    async with world(direction, folder) as made:
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
        (schedule,) = await made.source.schedules()
        assert (schedule.paused, schedule.next_at) == (True, None)
        return life.calls
