"""Tasks that the store hands off to an idle worker, without a store."""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.clock.wakeup import WakeUp
from onthedot.definitions.sources import Sources
from onthedot.engine.config import WorkerConfig
from onthedot.engine.handoff import Handoff
from onthedot.engine.outcome_buffer import OutcomeBuffer
from onthedot.engine.runner import Runner
from onthedot.engine.session import WorkerSession
from onthedot.engine.slots import Slots
from onthedot.observability.events import Observer
from onthedot.stores.contract import HandoffMessage, HandoffOffer, Lease, LeasedTasks, Requeued
from tests.unit.engine.test_slots import FakeSource


@dataclass
class FakeSession:
    id: str = "w"
    claim_number: int = 4
    is_claiming: bool = False
    fenced: bool = False

    def is_fenced(self) -> bool:
        return self.fenced


class Idle:
    """A worker with one source and three slots that runs nothing."""

    def __init__(self) -> None:
        self.session = FakeSession()
        self.started: list[LeasedTasks] = []
        self.outcomes = OutcomeBuffer()
        self.wakeup = WakeUp(ManualClock())
        config = WorkerConfig({"async": 3}, lease_ms=4_000)
        sources = Sources()
        sources.put(cast("Any", FakeSource("send")))
        slots = Slots(sources, config.slots)
        clock = ManualClock()
        self.runner = Runner((), clock, random.Random(1), Observer(), self.wakeup, slots, self.outcomes, lambda: False)
        self.handoff = Handoff(
            config,
            cast("Any", SimpleNamespace(max_handoff_sources=1)),
            sources,
            cast("WorkerSession", self.session),
            slots,
            self.runner,
            self.outcomes,
            self.wakeup,
            self.started.append,
        )
        self.sources = sources


def message(number: int) -> HandoffMessage:
    return HandoffMessage(number, LeasedTasks(9, [cast("Any", SimpleNamespace(uuid="u1"))]))


async def test_idle_worker_offers_its_free_slots_for_half_a_lease() -> None:
    idle = Idle()
    assert idle.handoff.offer() == HandoffOffer({"send": 3}, 2_000)


async def test_worker_with_many_sources_makes_no_offer() -> None:
    idle = Idle()
    idle.sources.put(cast("Any", FakeSource("receive")))
    assert idle.handoff.offer() is None


async def test_tasks_of_the_offer_start_and_count_as_a_claim() -> None:
    idle = Idle()
    idle.handoff.receive(message(5))
    assert (idle.started, idle.session.claim_number) == ([message(5).leased], 5)


async def test_tasks_wait_while_a_claim_is_in_flight() -> None:
    idle = Idle()
    idle.session.is_claiming = True
    idle.handoff.receive(message(5))
    assert (idle.started, idle.handoff.is_pending) == ([], True)
    idle.session.is_claiming = False  # without an answer
    idle.handoff.accept()
    assert (len(idle.started), idle.handoff.is_pending) == (1, False)


@pytest.mark.parametrize(("held", "released"), [(False, 1), (True, 0)])
async def test_tasks_of_an_earlier_claim_are_requeued_unless_they_run_here(held: bool, released: int) -> None:
    idle = Idle()
    lease = Lease("u1", 9, "w")
    if held:
        idle.runner.runs["u1"] = cast("Any", SimpleNamespace(lease=lease))
    idle.handoff.receive(message(4))
    assert idle.started == []
    assert [outcome for outcome, _ in idle.outcomes.take()] == [Requeued(lease, None, counted=False)] * released


async def test_fenced_worker_accepts_no_handoff() -> None:
    idle = Idle()
    idle.session.fenced = True
    idle.handoff.receive(message(5))
    assert (idle.started, len(idle.outcomes), idle.session.claim_number) == ([], 0, 4)
    await idle.wakeup.wait(None)  # returns at once: the loop is awake


async def test_message_for_a_replaced_session_is_discarded() -> None:
    idle = Idle()
    idle.session.is_claiming = True
    idle.handoff.receive(message(5))
    idle.handoff.discard()
    idle.session.is_claiming = False
    idle.handoff.accept()
    assert idle.started == []
