"""An outcome that the store cannot keep fails its own task only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.engine.failure_effects import FailureEffects
from onthedot.engine.outcome_buffer import Entry, OutcomeBuffer
from onthedot.engine.outcome_isolation import OutcomeIsolation
from onthedot.errors import ArgumentError, StoreUnavailable
from onthedot.model.context import current_run
from onthedot.model.failures import decode_failure
from onthedot.observability.events import Observer, Settled
from onthedot.stores.contract import (
    ClaimRequest,
    Completed,
    Effects,
    Ended,
    Lease,
    NewTask,
    Outcome,
    Policy,
    Record,
    TurnResult,
)
from onthedot.stores.memory import MemoryStore
from tests.support.waits import SOON, until

BAD = NewTask("019b0000-0000-7000-8000-000000000001", "child", b"", unique="file-\udcff")  # a lone surrogate

REFUSED = Effects((BAD,))
TAKEN = Effects((NewTask("019b0000-0000-7000-8000-000000000003", "child", b""),))
RECORD = Record("u0", "child", b"", Policy(), None, None, 0, 0, 0, "running")


class StrictMemoryStore(MemoryStore):
    """Refuses keys that are not UTF-8, as the other stores do."""

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        for outcome in outcomes:
            for task in outcome.effects.tasks if outcome.effects is not None else ():
                (task.unique or "").encode()
        return await super().turn(session, outcomes, request)


@pytest.fixture
def shop(store_url: str) -> Iterator[App]:
    app = App("shop", store=store_url, stop_timeout=0)
    if store_url == "memory://":
        app.runtime.use_store(StrictMemoryStore(app.runtime.clock))
    yield app
    app.shutdown()


async def test_outcome_that_cannot_be_stored_fails_its_own_task_and_others_run(
    shop: App, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()

    @shop.task
    async def careless() -> None:
        await go_on.wait()
        run = current_run()
        assert run is not None
        run.spawned = [BAD]

    @shop.task
    async def careful(number: int) -> int:
        await go_on.wait()
        return number

    async with shop.running():
        neighbours = await careful.enqueue_many([{"number": n} for n in range(5)])
        bad = await careless.enqueue()
        neighbours += await careful.enqueue_many([{"number": n} for n in range(5, 10)])
        worker = shop.runtime.worker
        assert worker is not None
        await until(lambda: len(worker.runs) == 11)
        go_on.set()  # all end in the same turn
        assert await asyncio.wait_for(asyncio.gather(*neighbours), SOON) == list(range(10))
        later = await careful.enqueue(10)
        assert await later.result(timeout=SOON) == 10
        info = await bad.info()
        assert info.state == "failed"
        assert info.error is not None
        assert info.error.message.startswith("its outcome cannot be stored: ")
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert bad.uuid in errors[0]


# -- without a worker


class PickyStore:
    """Raises for outcomes whose result is in `refused`; or for every call, if `down` is set."""

    def __init__(self, refused: set[bytes]) -> None:
        self.refused = refused
        self.settled: list[Outcome] = []
        self.calls = 0
        self.down: Exception | None = None
        self.fails_at: dict[int, BaseException] = {}  # by number of the call

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        assert request is None
        self.calls += 1
        if (error := self.fails_at.get(self.calls) or self.down) is not None:
            raise error
        for outcome in outcomes:
            refused = isinstance(outcome, Completed) and outcome.result in self.refused
            if refused or outcome.effects == REFUSED:
                raise ArgumentError("the key is too long")
        self.settled += outcomes
        return TurnResult(["ok"] * len(outcomes))


class Recorder(Observer):
    def __init__(self) -> None:
        self.refused: list[str] = []
        self.settled: list[str] = []

    def outcome_not_stored(self, settled: Settled, error: Exception) -> None:
        assert "too long" in str(error)
        self.refused.append(settled[0].lease.uuid)

    def tasks_settled(self, settled: Sequence[Settled], verdicts: Sequence[str], now: float) -> None:
        self.settled += [outcome.lease.uuid for outcome, _ in settled]


class Isolated:
    """effects: of every failed end."""

    def __init__(self, refused: set[int], effects: Effects | None = None) -> None:
        self.store = PickyStore({b"%d" % number for number in refused})
        self.observer = Recorder()
        self.outcomes = OutcomeBuffer()
        self.isolation = OutcomeIsolation(
            cast("Any", self.store),
            cast("Any", _Session()),
            self.outcomes,
            ManualClock(),
            self.observer,
            FailureEffects(None if effects is None else lambda record, ended: effects, self.observer),
        )


class _Session:
    id = "w"


def entries(count: int) -> list[Entry]:
    return [(Completed(Lease(f"u{n}", 1, "w"), b"%d" % n, effects=Effects()), None) for n in range(count)]


async def test_outcomes_are_settled_in_halves_and_refused_ones_end_as_failed() -> None:
    it = Isolated({3, 60})
    it.outcomes.put_back(entries(100))
    assert await it.isolation.settle()
    ends = {outcome.lease.uuid: outcome for outcome in it.store.settled}
    assert len(ends) == len(it.store.settled) == 100
    assert it.observer.refused == ["u3", "u60"]
    assert sorted(it.observer.settled) == sorted(ends)
    for uuid in ("u3", "u60"):
        end = ends[uuid]
        assert isinstance(end, Ended)
        assert (end.state, end.effects) == ("failed", None)
        failure = decode_failure(end.error)
        assert failure is not None
        assert failure.message == "its outcome cannot be stored: ArgumentError: the key is too long"
    assert it.store.calls < 40
    assert [outcome for outcome, _ in it.outcomes.take()] == it.store.settled, "they go with the next claim again"


async def test_run_of_a_settled_outcome_is_reported_once() -> None:
    it = Isolated(set())
    [(outcome, _)] = entries(1)
    it.outcomes.put_back([(outcome, cast("Any", object()))])
    await it.isolation.settle()
    assert it.observer.settled == ["u0"]
    assert it.outcomes.take() == [(outcome, None)]


@pytest.mark.parametrize("error", [StoreUnavailable("down"), asyncio.CancelledError()])
async def test_outcomes_are_kept_if_the_store_fails(error: BaseException) -> None:
    it = Isolated({0})
    it.outcomes.put_back(entries(4))
    it.store.fails_at = {3: error}
    with pytest.raises(type(error)):
        await it.isolation.settle()
    assert sorted(outcome.lease.uuid for outcome, _ in it.outcomes.take()) == ["u0", "u1", "u2", "u3"]


async def test_no_task_fails_if_the_store_refuses_every_call() -> None:
    it = Isolated(set())
    it.outcomes.put_back(entries(4))
    it.store.down = RuntimeError("a bug of the driver")
    with pytest.raises(RuntimeError, match="a bug of the driver"):
        await it.isolation.settle()
    assert it.observer.refused == []
    assert it.outcomes.take() == entries(4)


async def test_outcomes_that_can_be_stored_are_not_the_cause() -> None:
    it = Isolated(set())
    it.outcomes.put_back(entries(3))
    assert not await it.isolation.settle()
    assert it.observer.settled == ["u0", "u1", "u2"]
    assert it.outcomes.take() == entries(3)


class _Run:
    """As much of a run as isolation reads."""

    record = RECORD

    class source:
        class options:
            keep_failed = 1000


async def settle_refused(effects: Effects) -> Outcome:
    """The end of a run whose result cannot be stored, if `on_failed` makes these effects."""
    it = Isolated({0}, effects)
    [(outcome, _)] = entries(1)
    it.outcomes.put_back([(outcome, cast("Any", _Run()))])
    assert await it.isolation.settle()
    assert it.observer.refused == ["u0"]
    [end] = it.store.settled
    return end


async def test_end_of_an_outcome_that_cannot_be_stored_has_the_effects_of_a_failure() -> None:
    end = await settle_refused(TAKEN)
    assert isinstance(end, Ended)
    assert (end.state, end.effects) == ("failed", TAKEN)


async def test_effects_of_a_failure_that_cannot_be_stored_do_not_keep_the_task_from_ending() -> None:
    end = await settle_refused(REFUSED)
    assert isinstance(end, Ended)
    assert (end.state, end.effects) == ("failed", None)


async def test_failed_end_whose_effects_cannot_be_stored_keeps_its_error() -> None:
    it = Isolated(set())
    failed = Ended(Lease("u0", 1, "w"), "failed", b'{"type":"ValueError","message":"no such order"}', 1000, REFUSED)
    it.outcomes.put_back([(failed, None)])
    assert await it.isolation.settle()
    assert it.store.settled == [replace(failed, effects=None)]
    assert it.observer.refused == ["u0"]
