"""The meter counts every task, and its figures add up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from onthedot import App, BatchPolicy, Retry, SizeTable, StoreBusy, StoreUnavailable
from onthedot.codec.body import NO_HEADERS, Headers
from onthedot.codec.task_failure import TaskFailure
from onthedot.model.figures import Figures, FigureSum, Names
from onthedot.observability.events import Observers, Settled
from onthedot.observability.meter import Meter
from onthedot.observability.worker_metrics import METRICS
from onthedot.stores.contract import Completed, Ended, History, Lease, Policy, Record, Requeued, Suspended, Wait

BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True)
class Started:
    record: Record
    started: float = 1000.0
    headers: Headers = NO_HEADERS


def run_of(source: str, number: int = 0, *, due: int = 1000, started: float = 1000.0, retries: int = 0) -> Started:
    history = History(retries=retries)
    record = Record(f"u{number}", source, b"", Policy(), None, None, due, number, 0, "running", history)
    return Started(record, started)


def completed(run: Started) -> Settled:
    return Completed(Lease(run.record.uuid, 1, "w")), run


def value(figures: Figures, name: str, *labels: str) -> float:
    found = [sample.value for sample in figures.samples if (sample.metric, sample.labels) == (name, labels)]
    return sum(found)


def counts(figures: Figures, name: str, *labels: str) -> Sequence[int]:
    (found,) = [sample for sample in figures.histograms if (sample.metric, sample.labels) == (name, labels)]
    return found.counts


def test_outcomes_are_counted_by_source_and_state() -> None:
    meter = Meter()
    runs = [run_of("email", number) for number in range(6)]
    lease = Lease("u", 1, "w")
    settled: list[Settled] = [
        completed(runs[0]),
        (Ended(lease, "failed", b""), runs[1]),
        (Ended(lease, "cancelled", b""), runs[2]),
        (Requeued(lease, 5, counted=True), runs[3]),
        (Requeued(lease, None, counted=False), runs[4]),
        (Suspended(lease, Wait(())), runs[5]),
        completed(run_of("email", 7)),
        (Completed(lease), None),  # settled again: reported before
    ]
    meter.tasks_started(runs)
    meter.tasks_settled(settled, ["ok"] * 6 + ["lost", "repeat"], 1004.0)
    figures = meter.figures()
    for state in ("succeeded", "failed", "cancelled"):
        assert value(figures, "onthedot_worker_tasks_total", "email", state) == 1
    assert value(figures, "onthedot_worker_starts_total", "email") == 6
    assert value(figures, "onthedot_worker_retries_total", "email") == 1
    assert value(figures, "onthedot_worker_lost_runs_total", "email") == 1
    assert value(figures, "onthedot_worker_turns_total") == 1
    assert sum(counts(figures, "onthedot_worker_task_duration_seconds", "email")) == 6


@pytest.mark.parametrize("number", [1, 4, 5, 99, 100, 1000])
def test_every_task_of_a_large_turn_is_counted(number: int) -> None:
    meter = Meter()
    runs = [run_of(("email", "report")[index % 3 == 0], index, due=990) for index in range(number)]
    meter.tasks_started(runs)
    meter.tasks_settled([completed(run) for run in runs], ["ok"] * number, 1004.0)
    figures = meter.figures()
    for source in {run.record.source for run in runs}:
        own = sum(run.record.source == source for run in runs)
        assert value(figures, "onthedot_worker_tasks_total", source, "succeeded") == own
        latencies = counts(figures, "onthedot_worker_queue_latency_seconds", source)
        assert latencies[4] == own  # 10 ms: above 8, up to 16
        durations = counts(figures, "onthedot_worker_task_duration_seconds", source)
        assert durations[2] == own  # 4 ms is on the bound


def test_start_before_the_due_time_by_another_clock_has_no_latency() -> None:
    meter = Meter()
    meter.tasks_started([run_of("email", due=5000)])
    (sample, _) = meter.figures().histograms
    assert (sample.counts[0], sample.total) == (1, 0)


def test_chores_end_as_failed_or_cancelled() -> None:
    meter = Meter()
    base = run_of("email").record
    reasons = ("stray", "crashed", "undecodable", "expired", "cancel", "upstream")
    meter.chores_ended([Record(**{**_fields(base), "history": History(reason=reason)}) for reason in reasons])
    figures = meter.figures()
    assert value(figures, "onthedot_worker_tasks_total", "email", "failed") == 3
    assert value(figures, "onthedot_worker_tasks_total", "email", "cancelled") == 3


def _fields(record: Record) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_sources_above_the_limit_share_one_label() -> None:
    meter = Meter(2)
    runs = [run_of(f"source{number}", number) for number in range(1000)]
    meter.tasks_started(runs)
    meter.tasks_settled([completed(run) for run in runs], ["ok"] * 1000, 1000.0)
    figures = meter.figures()
    labels = {sample.labels[0] for sample in figures.samples if sample.metric == "onthedot_worker_tasks_total"}
    assert labels == {"source0", "source1", Names.OTHERS}
    assert value(figures, "onthedot_worker_tasks_total", Names.OTHERS, "succeeded") == 998


def test_store_errors_have_a_closed_set_of_kinds() -> None:
    meter = Meter()
    for error in (StoreUnavailable("away"), StoreBusy("locked"), StoreBusy("locked"), ValueError("?")):
        meter.store_failed("the loop", error)
    figures = meter.figures()
    errors = [sample for sample in figures.samples if sample.metric == "onthedot_store_errors_total"]
    assert {sample.labels[0]: sample.value for sample in errors} == {"unavailable": 1, "busy": 2, "other": 1}


def test_agents_are_counted_by_outcome() -> None:
    meter = Meter()
    runs = [run_of("agent.mailer", 1), run_of("agent.mailer", 2, retries=1), run_of("agent.mailer", 3, retries=2)]
    lease = Lease("u", 1, "w")
    settled: list[Settled] = [completed(runs[0]), completed(runs[1]), (Ended(lease, "failed", b""), runs[2])]
    meter.tasks_settled(settled, ["ok"] * 3, 1001.0)
    meter.events_received("mailer", "skipped", 4)
    meter.events_received("mailer", "duplicate", 1)
    meter.event_dead("e1", "mailer", TaskFailure("ValueError", "no", "", 3))
    figures = meter.figures()
    outcomes = ("done", "failed", "skipped", "duplicate")
    assert [value(figures, "onthedot_agent_events_total", "mailer", each) for each in outcomes] == [2, 1, 4, 1]
    assert value(figures, "onthedot_agent_retries_total", "mailer", "true") == 1
    assert value(figures, "onthedot_agent_retries_total", "mailer", "false") == 1
    assert value(figures, "onthedot_dead_letters_total", "mailer") == 1


def test_sum_keeps_counters_and_drops_gauges_of_ended_processes() -> None:
    first = Figures([], [])
    first.add(BY_NAME["onthedot_worker_turns_total"], 5)
    first.add(BY_NAME["onthedot_worker_rss_bytes"], 100)
    first.add(BY_NAME["onthedot_worker_loop_lag_seconds"], 0.5)
    second = Figures([], [])
    second.add(BY_NAME["onthedot_worker_turns_total"], 7)
    second.add(BY_NAME["onthedot_worker_rss_bytes"], 30)
    second.add(BY_NAME["onthedot_worker_loop_lag_seconds"], 0.2)
    both = FigureSum(BY_NAME)
    both.add(first)
    both.add(second)
    found = both.figures()
    names = ("onthedot_worker_turns_total", "onthedot_worker_rss_bytes", "onthedot_worker_loop_lag_seconds")
    assert [value(found, name) for name in names] == [12, 130, 0.5]
    after = FigureSum(BY_NAME)
    after.add(first, gauges=False)
    after.add(second)
    assert [value(after.figures(), name) for name in names] == [12, 30, 0.2]


def test_meter_that_fails_is_switched_off_and_tasks_go_on() -> None:
    class Broken(Meter):
        def tasks_started(self, runs: object) -> None:
            raise RuntimeError("broken")

    log = logging.LoggerAdapter(logging.getLogger("test"))
    observers = Observers([Broken()], log)
    observers.tasks_started([run_of("email")])
    assert observers.by_event["tasks_started"] == []


def test_meter_counts_what_a_worker_runs() -> None:
    app = App("shop", store="memory://")
    meter = Meter()
    app.runtime.use(replace(app.runtime.config, observers=(meter,)))

    @app.task(max_retries=1, backoff=0.01)
    async def work(number: int) -> int:
        if number == 1:
            raise ValueError(number)
        if number == 2:
            raise Retry(after=0)
        return number

    async def main() -> None:
        async with app.running():
            handles = [await work.enqueue(number) for number in range(5)]
            await asyncio.gather(*handles, return_exceptions=True)

    asyncio.run(main())
    figures = meter.figures()
    assert value(figures, "onthedot_worker_tasks_total", "work", "succeeded") == 3
    assert value(figures, "onthedot_worker_tasks_total", "work", "failed") == 2
    assert value(figures, "onthedot_worker_retries_total", "work") == 2
    assert value(figures, "onthedot_worker_starts_total", "work") == 7


def test_meter_counts_parts_of_batches() -> None:
    app = App("shop", store="memory://")
    meter = Meter()
    app.runtime.use(replace(app.runtime.config, observers=(meter,)))

    @app.task(batch=BatchPolicy(split=SizeTable({}, other=2)))
    async def names(count: int, type: str) -> list[str]:  # noqa: A002 - the parameter of batches
        return [f"name {index} of {count}" for index in range(count)]

    async def main() -> None:
        async with app.running():
            batch = await app.batch(names, count=6, type="elf")
            await batch.all(timeout=10)

    asyncio.run(main())
    figures = meter.figures()
    parts = value(figures, "batch_tasks_total", "elf", "succeeded")
    assert parts >= 3
    assert sum(counts(figures, "batch_task_duration_seconds", "elf")) == parts
    assert sum(counts(figures, "batch_first_response_seconds", "elf")) == 1
