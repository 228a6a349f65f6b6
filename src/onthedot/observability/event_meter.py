"""Counts what relays, agents, the callback service and batches report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal

from onthedot.codec.task_failure import TaskFailure
from onthedot.model.figures import Figures, Names
from onthedot.model.source_figures import Histogram
from onthedot.observability.events import Observer
from onthedot.observability.worker_metrics import (
    AGENT_EVENTS,
    BATCH_DURATION,
    BATCH_FIRST,
    BATCH_TASKS,
    BUS_ERRORS,
    DEAD_LETTERS,
    REFUSED,
    RELAY_BUCKETS,
    RESUME_SECONDS,
    SEND_SECONDS,
    SENT,
)
from onthedot.stores.contract import OutboxEvent


class EventMeter(Observer):
    """max_names: values of a label, such as topics; the others are one value."""

    def __init__(self, max_names: int) -> None:
        self.agent_names: Names = Names(max_names)
        self._topic_names = Names(max_names)
        self._batch_types = Names(max_names)
        self._sent: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._send_seconds = Histogram()
        self._buckets: int | None = None
        self._bus_errors = 0
        self._received: Counter[tuple[str, str]] = Counter()  # agent, outcome
        self._dead: Counter[str] = Counter()
        self._resume_seconds = Histogram()
        self._parts: Counter[tuple[str, str]] = Counter()  # type, status
        self._part_durations: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._first_parts: defaultdict[str, Histogram] = defaultdict(Histogram)

    # -- relay

    def buckets_changed(self, buckets: Sequence[int]) -> None:
        self._buckets = len(buckets)

    def events_sent(self, topic: str, count: int, ms: float) -> None:
        self._sent[self._topic_names.of(topic)] += count
        self._send_seconds.observe(max(0.0, ms))

    def event_refused(self, refused: OutboxEvent, error: str) -> None:  # noqa: ARG002 - of the observer
        self._refused[self._topic_names.of(refused.event.topic)] += 1

    def bus_failed(self, operation: str, error: Exception) -> None:  # noqa: ARG002 - of the observer
        self._bus_errors += 1

    # -- agents and the callback service

    def events_received(self, agent: str, outcome: Literal["skipped", "duplicate"], count: int) -> None:
        self._received[self.agent_names.of(agent), outcome] += count

    def event_dead(self, event: str, agent: str, failure: TaskFailure) -> None:  # noqa: ARG002 - of the observer
        self._dead[self.agent_names.of(agent)] += 1

    def waiter_resumed(self, ms: float) -> None:
        self._resume_seconds.observe(max(0.0, ms))

    # -- batches

    def batch_part_ended(self, kind: str, state: str, ms: float | None) -> None:
        name = self._batch_types.of(kind)
        self._parts[name, state] += 1
        if ms is not None:
            self._part_durations[name].observe(max(0.0, ms))

    def batch_responded(self, kind: str, ms: float) -> None:
        self._first_parts[self._batch_types.of(kind)].observe(max(0.0, ms))

    # -- reading

    def add_event_figures(self, figures: Figures) -> None:
        """A metric without an event has no sample."""
        for topic, count in self._sent.items():
            figures.add(SENT, count, topic)
        for topic, count in self._refused.items():
            figures.add(REFUSED, count, topic)
        if self._buckets is not None:
            figures.add(RELAY_BUCKETS, self._buckets)
        if self._bus_errors:
            figures.add(BUS_ERRORS, self._bus_errors)
        for (agent, outcome), count in self._received.items():
            figures.add(AGENT_EVENTS, count, agent, outcome)
        for agent, count in self._dead.items():
            figures.add(DEAD_LETTERS, count, agent)
        for (kind, status), count in self._parts.items():
            figures.add(BATCH_TASKS, count, kind, status)
        histograms = [
            self._send_seconds.sample(SEND_SECONDS),
            self._resume_seconds.sample(RESUME_SECONDS),
            *(each.sample(BATCH_DURATION, kind) for kind, each in self._part_durations.items()),
            *(each.sample(BATCH_FIRST, kind) for kind, each in self._first_parts.items()),
        ]
        figures.histograms += [each for each in histograms if any(each.counts)]
