"""Notes that running tasks wait for: written in batches, repeated after an outage, refused one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from onthedot.engine.note_batcher import NoteBatcher
from onthedot.engine.repeated_calls import RepeatedCalls
from onthedot.errors import StoreUnavailable
from onthedot.observability.events import Observer
from onthedot.stores.contract import Lease, Note, StoreTraits
from tests.support.waits import every_chance


class Store:
    """Answers a write when the test allows it."""

    def __init__(self, *, cancel_safe: bool) -> None:
        self.traits = StoreTraits(shared=True, cancel_safe=cancel_safe)
        self.writes: list[list[str]] = []
        self.gate = asyncio.Event()
        self.errors: list[Exception] = []

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        self.writes.append([note.name for note in notes])
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        if any(note.name == "bad" for note in notes):
            raise ValueError("cannot be stored")
        return [note.lease for note in notes if note.name == "lost"]


class Seen(Observer):
    def __init__(self) -> None:
        self.events: list[str] = []

    def store_failed(self, operation: str, error: BaseException) -> None:
        self.events.append(f"{operation} failed: {error}")

    def store_recovered(self, operation: str) -> None:
        self.events.append(f"{operation} recovered")


class Bench:
    def __init__(self, *, cancel_safe: bool) -> None:
        self.store = Store(cancel_safe=cancel_safe)
        self.seen = Seen()
        self.batcher = NoteBatcher(self.store, RepeatedCalls(self.seen, "saving"))  # type: ignore[arg-type]

    def write(self, name: str) -> asyncio.Task[bool]:
        return asyncio.create_task(self.batcher.write(Note(Lease(f"task {name}", 1, "w"), "step", name, b"{}")))


@pytest.fixture(params=[True, False], ids=["cancel-safe", "not-cancel-safe"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """A run writes its own note where a cancelled call does not affect others; else a writer does it."""
    return Bench(cancel_safe=request.param)


async def test_notes_gather_during_a_write(bench: Bench) -> None:
    first = bench.write("a")
    await every_chance()
    others = [bench.write(name) for name in ("b", "c", "d")]
    await every_chance()
    assert bench.store.writes == [["a"]]
    bench.store.gate.set()
    assert await asyncio.gather(first, *others) == [True] * 4
    assert bench.store.writes == [["a"], ["b", "c", "d"]]


async def test_lost_lease_is_reported_to_its_task_only(bench: Bench) -> None:
    bench.store.gate.set()
    written = [bench.write(name) for name in ("a", "lost", "c")]
    assert await asyncio.gather(*written) == [True, False, True]


async def test_note_that_cannot_be_stored_fails_alone(bench: Bench) -> None:
    bench.store.gate.set()
    good, bad, other = [bench.write(name) for name in ("a", "bad", "c")]
    assert await good
    assert await other
    with pytest.raises(ValueError, match="cannot be stored"):
        await bad


async def test_outage_is_waited_for(bench: Bench) -> None:
    bench.store.errors = [StoreUnavailable("gone"), StoreUnavailable("gone")]
    bench.store.gate.set()
    assert await bench.write("a")
    assert bench.store.writes == [["a"]] * 3
    assert bench.seen.events == ["saving failed: gone"] * 2 + ["saving recovered"]


async def test_note_of_a_cancelled_run_is_not_written(bench: Bench) -> None:
    first = bench.write("a")
    await every_chance()
    gone = bench.write("b")
    last = bench.write("c")
    await every_chance()
    gone.cancel()
    await every_chance()
    bench.store.gate.set()
    assert await first
    assert await last
    assert bench.store.writes == [["a"], ["c"]]


async def test_notes_of_others_are_written_after_a_cancelled_write(bench: Bench) -> None:
    first = bench.write("a")
    await every_chance()
    others = [bench.write(name) for name in ("b", "c")]
    await every_chance()
    first.cancel()
    await every_chance()
    bench.store.gate.set()
    assert await asyncio.gather(*others) == [True, True]
    assert bench.store.writes == [["a"], ["b", "c"]]
