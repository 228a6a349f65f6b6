"""Metrics of all workers together, from the store: what is pending, running, failed, paused, unsent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from onthedot.clock.epoch import from_ms, to_ms
from onthedot.clock.protocol import Clock
from onthedot.model.batch_names import batch_task
from onthedot.model.figures import Figures, FigureSum, Metric, Names
from onthedot.model.source_figures import SourceFigures
from onthedot.operations.attention import ScheduleStatus, schedule_status
from onthedot.operations.figure_records import read_totals
from onthedot.operations.health import server_info
from onthedot.operations.oldest_ready import read_oldest_ready
from onthedot.operations.outbox import OutboxOperations, OutboxStatus
from onthedot.operations.schedules import ScheduleOperations
from onthedot.operations.sources import SourceInfo, source_infos
from onthedot.operations.store_state import StoreState, Tally, read_store_state
from onthedot.stores.capabilities import ServerInfo
from onthedot.stores.contract import LIVE, PENDING, Record, State, Store

STORE_UP = Metric("onthedot_store_up", "gauge", "1 if the store answers, else 0.")
CLOCK_OFFSET = Metric(
    "onthedot_clock_offset_seconds", "gauge", "The clock of this machine minus that of the store's server."
)
STORE_MEMORY = Metric("onthedot_store_memory_bytes", "gauge", "Memory that the server of the store uses.")
STORE_MEMORY_LIMIT = Metric("onthedot_store_memory_limit_bytes", "gauge", "Memory that it may use, if that is limited.")
WORKERS = Metric("onthedot_workers", "gauge", "Live worker processes.")
RELAYS = Metric("onthedot_relays", "gauge", "Live relays.")
DEPTH = Metric(
    "onthedot_queue_depth", "gauge", "Tasks that are scheduled, ready, parked or waiting.", ("source", "state")
)
RUNNING = Metric("onthedot_tasks_running", "gauge", "Tasks that run.", ("source",))
FAILED = Metric("onthedot_failed_tasks", "gauge", "Failed tasks that are kept.", ("source",))
OLDEST_READY = Metric(
    "onthedot_oldest_ready_seconds",
    "gauge",
    "Time since the next ready task was due; 0 if none is ready.",
    ("source",),
    largest=True,
)
PAUSED = Metric("onthedot_paused", "gauge", "1 if the source is paused, else 0.", ("source",), largest=True)
SLOTS_AVAILABLE = Metric(
    "onthedot_slots_available", "gauge", "Tasks that the concurrency limit of the source still allows.", ("source",)
)
SCHEDULES = Metric(
    "onthedot_schedules", "gauge", "Schedules by status: active, paused, late, orphan, invalid.", ("status",)
)
BATCH_QUEUE = Metric("batch_queue_size", "gauge", "Pending tasks of tasks with live batches.", ("priority",))
TASKS = Metric("onthedot_tasks_total", "counter", "Tasks that have ended, by state.", ("source", "state"))
RETRIES = Metric("onthedot_retries_total", "counter", "Runs that failed and are retried.", ("source",))
RECLAIMS = Metric("onthedot_lease_reclaims_total", "counter", "Runs whose worker died.", ("source",))
RATE_LIMITED = Metric(
    "onthedot_rate_limited_total", "counter", "Runs that the other side sent back, to be repeated.", ("source",)
)
DURATION = Metric(
    "onthedot_task_duration_seconds", "histogram", "From the start of a run until it was settled.", ("source",)
)
LATENCY = Metric(
    "onthedot_queue_latency_seconds", "histogram", "From the due time of a task to its start.", ("source",)
)
LATENESS = Metric(
    "onthedot_schedule_lateness_seconds",
    "histogram",
    "From the time of a window to the start of its task.",
    ("source",),
)
OUTBOX_PENDING = Metric("onthedot_outbox_pending", "gauge", "Events that are not sent.", ("topic",))
OUTBOX_LAG = Metric(
    "onthedot_outbox_lag_seconds", "gauge", "Age of the oldest event that is not sent.", ("topic",), largest=True
)
OUTBOX_FAILED = Metric("onthedot_outbox_failed", "gauge", "Events that the bus has refused.")
BLOCKED_KEYS = Metric("onthedot_outbox_blocked_keys", "gauge", "Keys whose events wait for a refused one.")
HANDLES = Metric("onthedot_resume_handles", "gauge", "Resume handles by status.", ("status",))

FLEET_METRICS: tuple[Metric, ...] = (
    STORE_UP, CLOCK_OFFSET, STORE_MEMORY, STORE_MEMORY_LIMIT, WORKERS, RELAYS,
    DEPTH, RUNNING, FAILED, OLDEST_READY, PAUSED, SLOTS_AVAILABLE, SCHEDULES,
    TASKS, RETRIES, RECLAIMS, RATE_LIMITED, DURATION, LATENCY, LATENESS, BATCH_QUEUE,
    OUTBOX_PENDING, OUTBOX_LAG, OUTBOX_FAILED, BLOCKED_KEYS, HANDLES,
)  # fmt: skip
"""All of a fleet page, in its order."""

_BY_NAME: dict[str, Metric] = {metric.name: metric for metric in FLEET_METRICS}
_HEAD = 500  # ready tasks, of all sources, that are read at once
_PAGE = 1000
_MAX_READS = 20  # pages of records that one reading takes
_MAX_PAGES = 3  # of one source


class FleetMetrics:
    """Reads the figures of a fleet. It changes nothing.

    outbox: the store with the events; max_sources: how many are kept apart: those with most tasks now, and of counters
    those that were the first to run
    """

    def __init__(self, store: Store, outbox: Store, clock: Clock, max_sources: int) -> None:
        self._store = store
        self._outbox = OutboxOperations(outbox, clock)
        self._schedules = ScheduleOperations(store, "", clock)
        self._clock = clock
        self._max_sources = max_sources

    async def read(self) -> Figures:
        """Raises StoreError."""
        figures = Figures([], [])
        figures.add(STORE_UP, 1)
        state = await read_store_state(self._store)
        tally = state.tally
        figures.add(WORKERS, len(state.workers))
        server = await server_info(self._store)
        if server is not None:
            _add_server(figures, server, self._clock.now())
        await self._add_schedules(figures, state)
        infos = [info for info in source_infos(tally, state.limits, state.workers) if info.name[:1] != "@"]
        infos.sort(key=_size, reverse=True)
        with_ready = [info.name for info in infos if info.ready][: self._max_sources]
        oldest = (await read_oldest_ready(self._store, with_ready, self._clock.now(), _HEAD)).by_source
        names = Names(self._max_sources)
        for info in infos:
            _add_source(figures, names.of(info.name), info, oldest.get(info.name, 0.0))
        totals = await read_totals(self._store, int(self._clock.now()))
        names = Names(self._max_sources)  # in the order of the record, which lasts: a counter keeps its label
        for name, total in totals.sources.items():
            _add_total(figures, names.of(name), total)
        await self._add_batches(figures, tally, _RecordReader(self._store, _MAX_READS))
        status = await self._outbox.find_status()  # it may be in another store
        if status is not None:
            self._add_outbox(figures, status)
        together = FigureSum(_BY_NAME)  # of sources and topics that share a label
        together.add(figures)
        return together.figures()

    async def _add_schedules(self, figures: Figures, state: StoreState) -> None:
        now = from_ms(self._clock.now())
        found = Counter(schedule_status(schedule, now) for schedule in await self._schedules.list(state.workers))
        for status in get_args(ScheduleStatus):
            figures.add(SCHEDULES, found[status], status)

    async def _add_batches(self, figures: Figures, tally: Tally, reader: _RecordReader) -> None:
        """Only while there are batches: records must be read for their priorities."""
        live = {source for (source, state), count in tally.items() if count and state in LIVE}
        tasks = {task for source in live if (task := batch_task(source)) is not None}
        by_priority: Counter[int] = Counter()
        for task in sorted(tasks):
            for state in PENDING:
                if tally.get((task, state)):
                    by_priority.update(record.policy.priority for record in await reader.read(task, state))
        for priority, count in by_priority.items():
            figures.add(BATCH_QUEUE, count, str(priority))

    def _add_outbox(self, figures: Figures, status: OutboxStatus) -> None:
        figures.add(RELAYS, len(status.relays))
        figures.add(OUTBOX_FAILED, status.failed)
        figures.add(BLOCKED_KEYS, sum(each.blocked_keys for each in status.topics))
        names = Names(self._max_sources)
        for topic in status.topics:
            lag = 0.0
            if topic.oldest is not None:
                lag = max(0.0, self._clock.now() - to_ms(topic.oldest)) / 1000
            figures.add(OUTBOX_PENDING, topic.pending, names.of(topic.topic))
            figures.add(OUTBOX_LAG, lag, names.of(topic.topic))
        for handle_status, count in status.handles.items():
            figures.add(HANDLES, count, handle_status)


def unavailable() -> Figures:
    """The figures of a store that does not answer."""
    figures = Figures([], [])
    figures.add(STORE_UP, 0)
    return figures


@dataclass
class _RecordReader:
    """Reads records, in a bounded number of calls. left: calls that it may still make."""

    store: Store
    left: int

    async def read(self, source: str, state: State) -> list[Record]:
        """The newest tasks of a source in a state, as far as the bound allows."""
        found: list[Record] = []
        cursor: str | None = None
        for _ in range(min(_MAX_PAGES, self.left)):
            self.left -= 1
            page = await self.store.find({"source": source, "state": state}, cursor, _PAGE)
            found += page.rows
            cursor = page.after
            if cursor is None:
                break
        return found


def _size(info: SourceInfo) -> int:
    return info.ready + info.parked + info.scheduled + info.running + info.waiting


def _add_server(figures: Figures, server: ServerInfo, now: float) -> None:
    figures.add(CLOCK_OFFSET, (now - server.now) / 1000)
    if server.memory:
        figures.add(STORE_MEMORY, server.memory)
    if server.memory_limit:
        figures.add(STORE_MEMORY_LIMIT, server.memory_limit)


def _add_source(figures: Figures, name: str, info: SourceInfo, oldest: float) -> None:
    for state, count in _depths(info):
        figures.add(DEPTH, count, name, state)
    figures.add(RUNNING, info.running, name)
    figures.add(FAILED, info.failed, name)
    figures.add(OLDEST_READY, oldest, name)
    figures.add(PAUSED, info.paused is not None, name)
    for limit in info.limits:
        if limit.name == info.name and limit.cap is not None:
            figures.add(SLOTS_AVAILABLE, max(0, limit.cap - info.running), name)


def _add_total(figures: Figures, name: str, total: SourceFigures) -> None:
    figures.add(TASKS, total.succeeded, name, "succeeded")
    figures.add(TASKS, total.failed, name, "failed")
    figures.add(TASKS, total.cancelled, name, "cancelled")
    figures.add(RETRIES, total.retried, name)
    figures.add(RECLAIMS, total.crashed, name)
    figures.add(RATE_LIMITED, total.rate_limited, name)
    figures.histograms.append(total.duration.sample(DURATION, name))
    figures.histograms.append(total.latency.sample(LATENCY, name))
    if total.lateness.counts:
        figures.histograms.append(total.lateness.sample(LATENESS, name))


def _depths(info: SourceInfo) -> Iterator[tuple[State, int]]:
    yield "scheduled", info.scheduled
    yield "ready", info.ready
    yield "parked", info.parked
    yield "waiting", info.waiting
