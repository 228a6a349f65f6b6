"""The meter: it counts and times what a worker process does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from onthedot.errors import StoreBusy, StoreFull, StoreRefused, StoreUnavailable
from onthedot.model.agent_names import agent_of
from onthedot.model.figures import Figures, Histogram, Names
from onthedot.observability.event_meter import EventMeter
from onthedot.observability.events import Settled, StartedRun
from onthedot.observability.worker_metrics import (
    AGENT_EVENTS,
    AGENT_RETRIES,
    DURATION,
    LATENCY,
    LOST_RUNS,
    RETRIES,
    STARTS,
    STORE_ERRORS,
    TASKS,
    TURNS,
    WINDOWS,
)
from onthedot.stores.contract import Completed, Ended, Outcome, Record, Requeued, Verdict

MAX_NAMES = 100  # values of a label
_ERROR_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (StoreUnavailable, "unavailable"), (StoreBusy, "busy"), (StoreFull, "full"), (StoreRefused, "refused"),
)  # fmt: skip
_FAILED_CHORES = ("stray", "crashed", "undecodable")  # others are cancelled
_MAX_TIMED = 4  # runs of a source per call; of more, every nth is timed and counts for n


class _SourceMeter:
    """The figures of one source."""

    __slots__ = (
        "agent", "cancelled", "durations", "failed", "failed_after_retry", "latencies", "lost", "retried", "succeeded",
        "succeeded_after_retry",
    )  # fmt: skip

    def __init__(self, source: str) -> None:
        self.agent: str | None = agent_of(source)
        self.succeeded: int = 0
        self.failed: int = 0
        self.cancelled: int = 0
        self.retried: int = 0
        self.lost: int = 0
        self.succeeded_after_retry: int = 0
        self.failed_after_retry: int = 0
        self.latencies: Histogram = Histogram()
        self.durations: Histogram = Histogram()


class Meter(EventMeter):
    """Counts by source. All tasks are counted; of many in one call, some are timed: a task may take 5 µs in all.

    Most calls come on one event loop. A rare event of another thread may be lost when both count at once.

    max_names: sources that are counted apart, and values of other labels; the rest is the value "…"
    """

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        super().__init__(max_names)
        self._max_sources = max_names
        self._sources: dict[str, _SourceMeter] = {}
        self._others: _SourceMeter | None = None
        self._turns = 0
        self._windows: Counter[str] = Counter()
        self._store_errors: Counter[str] = Counter()

    def _source(self, name: str) -> _SourceMeter:
        found = self._sources.get(name)
        if found is not None:
            return found
        if len(self._sources) < self._max_sources:
            found = self._sources[name] = _SourceMeter(name)
            return found
        if self._others is None:
            self._others = _SourceMeter(Names.OTHERS)
        return self._others

    # -- tasks

    def tasks_started(self, runs: Sequence[StartedRun]) -> None:
        for name, started in _by_source(runs):
            latencies = self._source(name).latencies
            for run, weight in _timed(started):
                latencies.observe(max(0.0, run.started - run.record.due), weight)  # the clocks of two machines differ

    def tasks_settled(self, settled: Sequence[Settled], verdicts: Sequence[Verdict], now: float) -> None:
        self._turns += 1
        if "lost" in verdicts:
            settled = self._without_lost(settled, verdicts)
        completed = [run for outcome, run in settled if type(outcome) is Completed and run is not None]
        for name, runs in _by_source(completed):
            source = self._source(name)
            source.succeeded += len(runs)
            if source.agent is not None:
                source.succeeded_after_retry += sum(run.record.history.retries > 0 for run in runs)
            for run, weight in _timed(runs):
                source.durations.observe(max(0.0, now - run.started), weight)
        if len(completed) < len(settled):
            for outcome, unsuccessful in settled:
                if unsuccessful is not None and type(outcome) is not Completed:
                    self._count_unsuccessful(outcome, unsuccessful, now)

    def _without_lost(self, settled: Sequence[Settled], verdicts: Sequence[Verdict]) -> list[Settled]:
        kept: list[Settled] = []
        for each, verdict in zip(settled, verdicts, strict=False):
            _, run = each
            if verdict != "lost":
                kept.append(each)
            elif run is not None:
                self._source(run.record.source).lost += 1
        return kept

    def _count_unsuccessful(self, outcome: Outcome, run: StartedRun, now: float) -> None:
        source = self._source(run.record.source)
        source.durations.observe(max(0.0, now - run.started))
        is_failure = False
        if isinstance(outcome, Ended):
            self._count_end(source, outcome.state)
            is_failure = outcome.state == "failed"
        elif isinstance(outcome, Requeued) and outcome.counted:
            source.retried += 1
            is_failure = True
        if is_failure and run.record.history.retries:
            source.failed_after_retry += 1

    def _count_end(self, source: _SourceMeter, state: Literal["failed", "cancelled"]) -> None:
        if state == "failed":
            source.failed += 1
        else:
            source.cancelled += 1

    def chores_ended(self, records: Sequence[Record]) -> None:
        for record in records:
            is_failed = record.history.reason in _FAILED_CHORES
            self._count_end(self._source(record.source), "failed" if is_failed else "cancelled")

    # -- schedules and the store

    def schedule_fired(self, schedule: str, at: int) -> None:  # noqa: ARG002 - of the observer
        self._windows["fired"] += 1

    def schedule_failed(self, schedule: str, error: Exception) -> None:  # noqa: ARG002 - of the observer
        self._windows["failed"] += 1

    def windows_skipped(self, schedule: str, reason: Literal["overlap", "missed", "paused"], windows: int) -> None:  # noqa: ARG002 - of the observer
        if windows:
            self._windows[reason] += windows

    def store_failed(self, operation: str, error: BaseException) -> None:  # noqa: ARG002 - of the observer
        kind = next((kind for known, kind in _ERROR_KINDS if isinstance(error, known)), "other")
        self._store_errors[kind] += 1

    # -- reading

    def figures(self) -> Figures:
        """All that was counted since the start. From any thread."""
        figures = Figures([], [])
        figures.add(TURNS, self._turns)
        for outcome, count in self._windows.items():
            figures.add(WINDOWS, count, outcome)
        for kind, count in self._store_errors.items():
            figures.add(STORE_ERRORS, count, kind)
        for name, source in list(self._sources.items()):
            self._add_source(figures, name, source)
        if self._others is not None:
            self._add_source(figures, Names.OTHERS, self._others)
        self.add_event_figures(figures)
        return figures

    def _add_source(self, figures: Figures, name: str, source: _SourceMeter) -> None:
        figures.add(STARTS, sum(source.latencies.counts), name)
        figures.add(TASKS, source.succeeded, name, "succeeded")
        figures.add(TASKS, source.failed, name, "failed")
        figures.add(TASKS, source.cancelled, name, "cancelled")
        figures.add(RETRIES, source.retried, name)
        figures.add(LOST_RUNS, source.lost, name)
        figures.histograms.append(source.latencies.sample(LATENCY, name))
        figures.histograms.append(source.durations.sample(DURATION, name))
        if source.agent is not None:
            figures.add(AGENT_EVENTS, source.succeeded, source.agent, "done")
            figures.add(AGENT_EVENTS, source.failed, source.agent, "failed")
            figures.add(AGENT_RETRIES, source.succeeded_after_retry, source.agent, "true")
            figures.add(AGENT_RETRIES, source.failed_after_retry, source.agent, "false")


def _by_source(runs: Sequence[StartedRun]) -> Iterable[tuple[str, Sequence[StartedRun]]]:
    """Tasks of one source usually come together: then it costs little."""
    if not runs:
        return ()
    names = [run.record.source for run in runs]
    if names.count(names[0]) == len(names):
        return ((names[0], runs),)
    groups: dict[str, list[StartedRun]] = {}
    for name, run in zip(names, runs, strict=True):
        groups.setdefault(name, []).append(run)
    return groups.items()


def _timed(runs: Sequence[StartedRun]) -> Iterator[tuple[StartedRun, int]]:
    """Runs to be timed, and for how many each of them counts."""
    step = -(-len(runs) // _MAX_TIMED)
    for start in range(0, len(runs), step):
        yield runs[start], min(step, len(runs) - start)
