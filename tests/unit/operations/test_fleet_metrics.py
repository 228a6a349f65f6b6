"""Metrics of a fleet, read from its store."""

from __future__ import annotations

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.model.figures import Figures, Names
from onthedot.model.source_figures import FLEET, FigureRecord, SourceFigures, encode_record
from onthedot.observability.worker_metrics import METRICS
from onthedot.operations.fleet_metrics import FLEET_METRICS, FleetMetrics
from onthedot.schedules.stored_rule import StoredRule, encode_rule
from onthedot.stores.contract import (
    ClaimRequest,
    Ended,
    HandleRecord,
    Lease,
    Limit,
    NewTask,
    Policy,
    RelayRequest,
    Schedule,
    SeriesEntry,
    SlotPool,
)
from onthedot.stores.memory import MemoryStore
from tests.unit.events.relay_steps import TOPIC, LeasedMemoryStore, Setup, event


def value(figures: Figures, name: str, *labels: str) -> float | None:
    found = [sample.value for sample in figures.samples if (sample.metric, sample.labels) == (name, labels)]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


async def read(store: MemoryStore, clock: ManualClock, max_sources: int = 100) -> Figures:
    return await FleetMetrics(store, store, clock, max_sources).read()


async def test_tasks_by_source_and_state(store: MemoryStore, clock: ManualClock) -> None:
    await store.put_limits([Limit("email", cap=5), Limit("report", paused=True, owner="operator")])
    await store.heartbeat("w", b'{"sources":["email"]}', 10_000_000)
    await store.add([NewTask(str(number), "email", b"") for number in range(4)])
    await store.add([NewTask("later", "email", b"", after=60_000), NewTask("r", "report", b"")])
    turn = await store.turn("w", (), ClaimRequest(1, [SlotPool(2, {"email": 2})]))
    assert turn.claim is not None
    await store.turn("w", [Ended(Lease(turn.claim.tasks[0].uuid, turn.claim.fence, "w"), "failed", b"")], None)
    clock.advance(7_000)
    figures = await read(store, clock)
    assert value(figures, "onthedot_store_up") == 1
    assert value(figures, "onthedot_workers") == 1
    for state, count in {"scheduled": 1, "ready": 2, "parked": 0, "waiting": 0}.items():
        assert value(figures, "onthedot_queue_depth", "email", state) == count
    assert value(figures, "onthedot_tasks_running", "email") == 1
    assert value(figures, "onthedot_failed_tasks", "email") == 1
    assert value(figures, "onthedot_oldest_ready_seconds", "email") == 7
    assert value(figures, "onthedot_slots_available", "email") == 4
    assert value(figures, "onthedot_slots_available", "report") is None
    assert [value(figures, "onthedot_paused", source) for source in ("email", "report")] == [0, 1]
    assert value(figures, "batch_queue_size", "5") is None


async def test_sources_above_the_limit_are_one(store: MemoryStore, clock: ManualClock) -> None:
    await store.add([NewTask(f"{number}.{task}", f"s{number}", b"") for number in range(5) for task in range(number)])
    figures = await read(store, clock, 2)
    labels = {sample.labels for sample in figures.samples if sample.metric == "onthedot_tasks_running"}
    assert labels == {("s4",), ("s3",), (Names.OTHERS,)}
    assert value(figures, "onthedot_queue_depth", Names.OTHERS, "ready") == 3


async def test_oldest_ready_task_of_every_source_behind_a_long_queue(store: MemoryStore, clock: ManualClock) -> None:
    await store.add([NewTask(f"a{number}", "a", b"") for number in range(600)])
    clock.advance(3_000)
    await store.add([NewTask(f"{number}", f"s{number}", b"") for number in range(30)])
    clock.advance(2_000)
    figures = await read(store, clock)
    assert value(figures, "onthedot_oldest_ready_seconds", "a") == 5
    assert {value(figures, "onthedot_oldest_ready_seconds", f"s{number}") for number in range(30)} == {2}


async def test_schedules_by_status(store: MemoryStore, clock: ManualClock) -> None:
    now = int(clock.now())
    rule = encode_rule(StoredRule("send", "{}", {"type": "interval", "interval": 60}))
    await store.put_schedules(
        [
            Schedule("a", rule, "", now - 61_000),
            Schedule("b", rule, "", now + 60_000),
            Schedule("c", rule, "", now, paused=True),
            Schedule("d", rule, "x", now),
            Schedule("e", b"?", "", now),
        ]
    )
    figures = await read(store, clock)
    statuses = ("late", "active", "paused", "orphan", "invalid")
    assert [value(figures, "onthedot_schedules", status) for status in statuses] == [1] * 5


async def test_pending_parts_by_priority_while_a_batch_lives(store: MemoryStore, clock: ManualClock) -> None:
    parts = [NewTask(str(number), "names", b"", policy=Policy(priority=3 + number % 2 * 4)) for number in range(5)]
    await store.add([NewTask("b", "names:batch", b""), *parts, NewTask("x", "other", b"")])
    figures = await read(store, clock)
    assert (value(figures, "batch_queue_size", "3"), value(figures, "batch_queue_size", "7")) == (3, 2)


async def test_events_that_are_not_sent() -> None:
    setup = Setup(LeasedMemoryStore(clock := ManualClock()), clock)
    await setup.publish(event("a", event_id="1"), event("b", event_id="2"))
    await setup.store.heartbeat("r", b'{"component":"relay"}', 10_000_000)
    result = await setup.store.relay("r", (), {}, RelayRequest())
    await setup.store.relay("r", (), {result.events[0].seq: "too large"}, None)
    await setup.store.create_handle(HandleRecord("h", "c", ((("A.B.Done",), 1),), "signal", 60_000))
    figures = await read(setup.store, clock)
    lag = value(figures, "onthedot_outbox_lag_seconds", TOPIC)
    clock.advance(9_000)
    figures = await read(setup.store, clock)
    assert value(figures, "onthedot_outbox_pending", TOPIC) == 1
    assert lag is not None
    assert value(figures, "onthedot_outbox_lag_seconds", TOPIC) == pytest.approx(lag + 9)
    assert value(figures, "onthedot_outbox_failed") == 1
    assert value(figures, "onthedot_outbox_blocked_keys") == 1
    assert value(figures, "onthedot_relays") == 1
    assert value(figures, "onthedot_resume_handles", "pending") == 1


def test_names_of_fleet_metrics_are_not_those_of_workers() -> None:
    """Else a sum over all targets would count twice."""
    assert not {metric.name for metric in FLEET_METRICS} & {metric.name for metric in METRICS}


async def test_totals_are_those_of_the_series(store: MemoryStore, clock: ManualClock) -> None:
    figures = SourceFigures(5, 3, 1, 1, 2, 1)
    for ms in (0.5, 3.0, 3.0):
        figures.duration.observe(ms)
    now = int(clock.now())
    record = encode_record(FigureRecord({"email": figures}, until=now - 60_000), 10_000)
    row = encode_record(FigureRecord({"email": SourceFigures(1, 1)}), 10_000)
    await store.write_series([SeriesEntry("totals", 0, FLEET, record), SeriesEntry("minutes", now, "w1", row)])
    found = await read(store, clock)
    states = ("succeeded", "failed", "cancelled")
    assert [value(found, "onthedot_tasks_total", "email", state) for state in states] == [4, 1, 1]
    assert value(found, "onthedot_retries_total", "email") == 2
    assert value(found, "onthedot_lease_reclaims_total", "email") == 1
    (durations,) = [each for each in found.histograms if each.metric == "onthedot_task_duration_seconds"]
    assert list(durations.counts)[:4] == [1, 0, 2, 0]
    assert durations.total == pytest.approx(0.0065)
