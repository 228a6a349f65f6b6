"""The meter: it counts and times what a worker process does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from onthedot.errors import StoreBusy, StoreFull, StoreRefused, StoreUnavailable
from onthedot.model.agent_names import agent_of
from onthedot.model.figures import Figures, Names
from onthedot.model.source_figures import SourceFigures
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


class _AgentMeter:
    """The runs of an agent after a failed one."""

    __slots__ = ("failed_after_retry", "succeeded_after_retry")

    def __init__(self) -> None:
        self.succeeded_after_retry: int = 0
        self.failed_after_retry: int = 0


class Meter(EventMeter):
    """Counts by source. All tasks are counted; of many in one call, some are timed: a task may take 5 µs in all.

    The figures since the last `take` are apart from those before: the series get the first, metrics get both.
    Most calls come on one event loop. A rare event of another thread may be lost when both count at once.

    max_names: sources that are counted apart, and values of other labels; the rest is the value "…"
    """

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        super().__init__(max_names)
        self._source_names = Names(max_names)
        self._recent: dict[str, SourceFigures] = {}
        self._taken: dict[str, SourceFigures] = {}
        self._agents: dict[str, _AgentMeter | None] = {}  # by source; None: it is no agent
        self._lost: Counter[str] = Counter()
        self._turns = 0
        self._windows: Counter[str] = Counter()
        self._store_errors: Counter[str] = Counter()

    def _source(self, name: str) -> SourceFigures:
        found = self._recent.get(name)
        if found is not None:
            return found
        name = self._source_names.of(name)
        if name not in self._agents:
            self._agents[name] = None if agent_of(name) is None else _AgentMeter()
        return self._recent.setdefault(name, SourceFigures())

    # -- tasks

    def tasks_started(self, runs: Sequence[StartedRun]) -> None:
        for name, started in _by_source(runs):
            figures = self._source(name)
            figures.started += len(started)
            latency = figures.latency
            for run, weight in _timed(started):
                latency.observe(max(0.0, run.started - run.record.due), weight)  # the clocks of two machines differ
        for run in runs:
            if run.record.history.reason == "crash":
                self._source(run.record.source).crashed += 1

    def tasks_settled(self, settled: Sequence[Settled], verdicts: Sequence[Verdict], now: float) -> None:
        self._turns += 1
        if "lost" in verdicts:
            settled = self._without_lost(settled, verdicts)
        completed = [run for outcome, run in settled if type(outcome) is Completed and run is not None]
        for name, runs in _by_source(completed):
            figures = self._source(name)
            figures.succeeded += len(runs)
            agent = self._agents.get(name)
            if agent is not None:
                agent.succeeded_after_retry += sum(run.record.history.retries > 0 for run in runs)
            for run, weight in _timed(runs):
                _time(figures, run, weight, now)
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
                self._lost[self._source_names.of(run.record.source)] += 1
        return kept

    def _count_unsuccessful(self, outcome: Outcome, run: StartedRun, now: float) -> None:
        figures = self._source(run.record.source)
        _time(figures, run, 1, now)
        is_failure = False
        if isinstance(outcome, Ended):
            _count_end(figures, outcome.state)
            is_failure = outcome.state == "failed"
        elif isinstance(outcome, Requeued) and outcome.counted:
            figures.retried += 1
            is_failure = True
        elif isinstance(outcome, Requeued) and outcome.error:
            figures.rate_limited += 1
        agent = self._agents.get(run.record.source)
        if agent is not None and is_failure and run.record.history.retries:
            agent.failed_after_retry += 1

    def chores_ended(self, records: Sequence[Record]) -> None:
        for record in records:
            figures = self._source(record.source)
            _count_end(figures, "failed" if record.history.reason in _FAILED_CHORES else "cancelled")
            figures.crashed += record.history.reason == "crashed"

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

    @property
    def has_figures(self) -> bool:
        """Something was counted since the last `take`."""
        return bool(self._recent)

    def take(self) -> Mapping[str, SourceFigures]:
        """The figures of sources since the last call."""
        recent = self._recent
        self._recent = {}
        for name, figures in recent.items():
            self._taken.setdefault(name, SourceFigures()).add(figures)
        return recent

    def figures(self) -> Figures:
        """All that was counted since the start. From any thread."""
        figures = Figures([], [])
        figures.add(TURNS, self._turns)
        for outcome, count in self._windows.items():
            figures.add(WINDOWS, count, outcome)
        for kind, count in self._store_errors.items():
            figures.add(STORE_ERRORS, count, kind)
        for name in list(self._agents):
            total = SourceFigures()
            for part in (self._taken, self._recent):
                if name in part:
                    total.add(part[name])
            self._add_source(figures, name, total)
        self.add_event_figures(figures)
        return figures

    def _add_source(self, figures: Figures, name: str, total: SourceFigures) -> None:
        figures.add(STARTS, total.started, name)
        figures.add(TASKS, total.succeeded, name, "succeeded")
        figures.add(TASKS, total.failed, name, "failed")
        figures.add(TASKS, total.cancelled, name, "cancelled")
        figures.add(RETRIES, total.retried, name)
        figures.add(LOST_RUNS, self._lost[name], name)
        figures.histograms.append(total.latency.sample(LATENCY, name))
        figures.histograms.append(total.duration.sample(DURATION, name))
        agent = self._agents[name]
        label = agent_of(name)
        if agent is not None and label is not None:
            figures.add(AGENT_EVENTS, total.succeeded, label, "done")
            figures.add(AGENT_EVENTS, total.failed, label, "failed")
            figures.add(AGENT_RETRIES, agent.succeeded_after_retry, label, "true")
            figures.add(AGENT_RETRIES, agent.failed_after_retry, label, "false")


def _count_end(figures: SourceFigures, state: Literal["failed", "cancelled"]) -> None:
    if state == "failed":
        figures.failed += 1
    else:
        figures.cancelled += 1


def _time(figures: SourceFigures, run: StartedRun, weight: int, now: float) -> None:
    figures.duration.observe(max(0.0, now - run.started), weight)
    nominal = run.headers.scheduled_for
    if nominal is not None:
        figures.lateness.observe(max(0.0, run.started - nominal), weight)


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
