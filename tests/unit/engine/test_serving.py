"""A serving coroutine that ends with an exception, without a store."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

from onthedot.clock.manual import ManualClock
from onthedot.clock.wakeup import WakeUp
from onthedot.codec.body import NO_HEADERS
from onthedot.definitions.sources import Sources
from onthedot.engine.outcome_buffer import OutcomeBuffer
from onthedot.engine.run import Run
from onthedot.engine.runner import Runner
from onthedot.engine.slots import Slots
from onthedot.executors.event_loop import EventLoopExecutor
from onthedot.model.failures import decode_failure
from onthedot.observability.events import Observer
from onthedot.stores.contract import DEFAULT, Completed, Ended, Lease, Outcome, Record
from tests.support.waits import until
from tests.unit.engine.test_slots import FakeSource


class BrokenOnce(Observer):
    """Raises for the first error, as an observer without a guard would."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def error_classified(self, record: Record, error: BaseException, outcome: Outcome, max_retries: int) -> None:
        self.calls.append(record.uuid)
        if len(self.calls) == 1:
            raise RuntimeError("the observer is broken")


async def test_run_of_a_server_that_raises_ends_as_failed_and_the_queue_is_served() -> None:
    sources = Sources()
    sources.put(cast("Any", FakeSource("send")))
    slots = Slots(sources, {"async": 2})
    clock = ManualClock()
    outcomes = OutcomeBuffer()
    observer = BrokenOnce()
    runner = Runner((), clock, random.Random(1), observer, WakeUp(clock), slots, outcomes, lambda: False)
    slots.take(["send", "send"])
    runner.start([run("bad", fails=True), run("good", fails=False)])
    await until(lambda: len(outcomes) == 2)
    ends = {outcome.lease.uuid: outcome for outcome, _ in outcomes.take()}
    assert isinstance(ends["good"], Completed)
    bad = ends["bad"]
    assert isinstance(bad, Ended)
    failure = decode_failure(bad.error)
    assert failure is not None
    assert (bad.state, failure.message) == ("failed", "the observer is broken")
    assert observer.calls == ["bad", "bad"]  # the second time about the failure of the server
    assert slots.pools(clock.now())[0].total == 2
    assert not runner.runs


def run(uuid: str, *, fails: bool) -> Run:
    async def call(_: object) -> None:
        if fails:
            raise ValueError("of the task")

    options = SimpleNamespace(
        timeout=None, retry_on=(), reject_on=(), max_retries=0, retries_for=lambda _: 0, keep=1, keep_failed=1,
        keep_result=None,
    )  # fmt: skip
    source = SimpleNamespace(options=options, call=call, decode=lambda _: ({}, NO_HEADERS))
    record = Record(uuid, "send", b"", DEFAULT, None, None, 0, 1, 0, "running")
    lease = Lease(uuid, 1, "w")
    executor = EventLoopExecutor()
    return Run(cast("Any", source), record, lease, cast("Any", None), executor=executor, started=0)
