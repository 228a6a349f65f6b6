"""Tasks that are claimed beyond the slots: when, and what happens to those that get no slot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.clock.wakeup import WakeUp
from onthedot.definitions.sources import Source, Sources
from onthedot.engine.outcome_buffer import OutcomeBuffer
from onthedot.engine.run import Run
from onthedot.engine.runner import Runner
from onthedot.engine.slots import PoolUsage, Slots
from onthedot.model.executor_names import ASYNC, THREAD
from onthedot.observability.events import Observer
from onthedot.stores.contract import ClaimRequest, Completed, Ended, Outcome, Requeued, TurnResult
from onthedot.stores.memory import MemoryStore
from tests.support.waits import every_chance, until
from tests.unit.engine.test_serving import run
from tests.unit.engine.test_slots import FakeSource

# -- how many


def slots_of(number: int, *, claim_batch: int | None = None, one_pool: bool = False) -> Slots:
    sources = Sources()
    sources.put(cast("Source", FakeSource("send")))
    sources.put(cast("Source", FakeSource("work", executor=THREAD)))
    return Slots(sources, {ASYNC: number, THREAD: number}, claim_batch=claim_batch, one_pool=one_pool)


def requested(slots: Slots, now: float, name: str = "send") -> int:
    return next(pool.total for pool in slots.pools(now) if name in pool.capacity)


def run_all(slots: Slots, number: int, name: str = "send") -> None:
    slots.take([name] * number)
    for _ in range(number):
        slots.release(name)


def test_claims_double_while_all_tasks_end_before_the_next_turn() -> None:
    slots = slots_of(100)
    sizes: list[int] = []
    for cycle in range(5):
        sizes.append(requested(slots, cycle * 10.0))
        run_all(slots, sizes[-1])
    assert sizes == [100, 200, 400, 400, 400]


def test_claim_takes_as_many_as_there_are_free_slots_while_a_task_runs() -> None:
    slots = slots_of(100)
    run_all(slots, requested(slots, 0))
    assert slots.take(["send"] * requested(slots, 1)) == 100
    for _ in range(199):
        slots.release("send")
    assert requested(slots, 2) == 99
    run_all(slots, 99)
    slots.release("send")
    assert requested(slots, 3) == 100, "one claim after another must have been filled"


@pytest.mark.parametrize(("taken", "later"), [(99, 1.0), (100, 31.0)], ids=["unfilled", "long"])
def test_unfilled_claim_or_long_cycle_takes_no_task_ahead(taken: int, later: float) -> None:
    slots = slots_of(100)
    assert requested(slots, 0) == 100
    run_all(slots, taken)
    assert requested(slots, later) == 100


@pytest.mark.parametrize(
    ("slots", "name"),
    [
        (slots_of(31), "send"), (slots_of(100, claim_batch=100), "send"), (slots_of(100, one_pool=True), "send"),
        (slots_of(100), "work"), (slots_of(500), "send"),
    ],
    ids=["few slots", "claim_batch", "one pool", "threads", "many slots"],
)  # fmt: skip
def test_no_task_is_claimed_ahead(slots: Slots, name: str) -> None:
    size = requested(slots, 0, name)
    run_all(slots, size, name)
    assert requested(slots, 1, name) == size


def test_usage_counts_no_more_than_the_slots() -> None:
    slots = slots_of(100)
    slots.take(["send"] * 250)
    assert slots.usage()[ASYNC] == PoolUsage(100, 100)


# -- in the runner


class Bench:
    """A runner with a number of slots. Each task ends when its gate opens."""

    def __init__(self, slots: int) -> None:
        self.outcomes: OutcomeBuffer = OutcomeBuffer()
        self.slots: Slots = slots_of(slots)
        self.gates: dict[str, asyncio.Event] = {}
        clock = ManualClock()
        self.runner: Runner = Runner(
            (), clock, random.Random(1), Observer(), WakeUp(clock), self.slots, self.outcomes, lambda: False
        )

    def start(self, names: Sequence[str]) -> None:
        runs = [self._run(name) for name in names]
        self.runner.start(runs, self.slots.take(["send"] * len(runs)))

    def _run(self, name: str) -> Run:
        made = run(name, fails=False)

        async def call(_: object) -> None:
            self.gates[name] = asyncio.Event()
            await self.gates[name].wait()

        cast("Any", made.source).call = call
        return made

    def ends(self) -> dict[str, type[Outcome]]:
        return {outcome.lease.uuid: type(outcome) for outcome, _ in self.outcomes.take()}


async def test_task_that_was_claimed_ahead_begins_when_a_slot_is_free() -> None:
    bench = Bench(32)
    bench.slots.take(["send"] * 30)  # other runs
    bench.start(["a", "b", "c", "d"])
    await until(lambda: len(bench.gates) == 2)
    await every_chance()
    assert list(bench.gates) == ["a", "b"]
    bench.gates["b"].set()
    await until(lambda: len(bench.gates) == 3)
    assert bench.runner.has_held()
    bench.gates["a"].set()
    await until(lambda: len(bench.gates) == 4)
    assert not bench.runner.has_held()
    for gate in bench.gates.values():
        gate.set()
    await until(lambda: not bench.runner.is_busy())
    assert bench.ends() == dict.fromkeys("bacd", Completed)


async def test_held_tasks_are_requeued_or_cancelled_without_a_run() -> None:
    bench = Bench(32)
    names = [f"t{number:02}" for number in range(36)]
    bench.start(names)
    await until(lambda: len(bench.gates) == 32)
    bench.runner.cancel("t33", "cancel")
    await every_chance()
    assert bench.ends() == {"t33": Ended}
    assert len(bench.gates) == 32, "no slot is free"
    bench.runner.release_held()
    assert bench.ends() == dict.fromkeys(("t32", "t34", "t35"), Requeued)
    for gate in list(bench.gates.values()):
        gate.set()
    await until(lambda: not bench.runner.is_busy())
    assert len(bench.ends()) == 32
    assert not bench.runner.runs


# -- in an app


async def test_long_tasks_behind_short_ones_run_in_the_slots_and_the_others_are_requeued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    totals: list[int] = []
    requeued: list[str] = []
    turn = MemoryStore.turn

    async def watched(
        self: MemoryStore, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None
    ) -> TurnResult:
        if request is not None:
            totals.extend(pool.total for pool in request.pools)
        requeued.extend(outcome.lease.uuid for outcome in outcomes if isinstance(outcome, Requeued))
        return await turn(self, session, outcomes, request)

    monkeypatch.setattr(MemoryStore, "turn", watched)
    app = App("ahead", store="memory://", concurrency=40)
    running: set[int] = set()
    gate = asyncio.Event()
    most = 0

    @app.task
    async def act(number: int) -> None:
        nonlocal most
        if number >= 400:
            running.add(number)
            most = max(most, len(running))
            await gate.wait()
            running.discard(number)

    with app.override(store="memory://", clock=ManualClock()):
        handles = await act.enqueue_many([{"number": number} for number in range(600)])
        async with app.running():
            await until(lambda: len(running) == 40)
            await every_chance()
            assert max(totals) == 160
            assert requeued, "of a claim that was made ahead, not all have got a slot"
            infos = [await handle.info() for handle in handles]
            assert [info.state for info in infos] == ["succeeded"] * 400 + ["running"] * 40 + ["ready"] * 160
            assert {(info.attempt, info.started_at) for info in infos[440:]} == {(1, None)}
            gate.set()
            for handle in handles:
                await handle.result()
    assert most == 40
