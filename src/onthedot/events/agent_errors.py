"""Errors of an agent, and the outcomes that its classification decides."""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from onthedot.clock.durations import to_duration_ms
from onthedot.errors import Retry, Snooze
from onthedot.events.agents import BaseAgent
from onthedot.events.event import Event
from onthedot.events.throttle import Throttle
from onthedot.model.context import RunState
from onthedot.model.error_policy import classify_error, failed_outcome, is_own_end
from onthedot.model.failures import encode_failure
from onthedot.model.options import ResolvedOptions
from onthedot.stores.contract import Ended, Outcome, Record, Requeued

_MAX_REVIVED = 10_000  # throttled tasks of operators' retries that are remembered


class AgentErrors:
    """Decides what errors of one agent mean for their tasks."""

    def __init__(self, agent: BaseAgent, options: ResolvedOptions, throttle: Throttle) -> None:
        self._agent = agent
        self._options = options
        self._throttle = throttle
        self._give_up = to_duration_ms(agent.give_up, "give_up")
        self._random = Random()
        self._revived: dict[str, int] = {}  # uuid → due time of the first run that was throttled after a revive

    def decide(self, run: RunState, event: Event[Any], error: Exception) -> None:
        """Leaves the outcome with the run; none if the options of the task decide, as they do for any task."""
        if is_own_end(error, run.record):
            return
        try:
            outcome = self._outcome(run, event, error)
        except Exception as broken:  # noqa: BLE001 - it is the error of the task then
            broken.__context__ = error
            outcome = failed_outcome(broken, run.record, run.lease, self._options)
        if outcome is not None:
            run.classified = (error, outcome)

    def _outcome(self, run: RunState, event: Event[Any], error: Exception) -> Requeued | Ended | None:
        answer = self._agent.classify_error(error, event)
        if answer == "retriable":
            return None
        if answer == "permanent":
            return failed_outcome(error, run.record, run.lease, self._options)
        if isinstance(answer, Snooze):
            return self._snoozed(run, answer, error)
        if isinstance(answer, Retry):
            return self._retried(run, answer, error)
        raise TypeError(
            f"classify_error of agent {self._agent.id!r} returned {answer!r}; it returns 'retriable', 'permanent', a "
            "Retry(…) or a Snooze(…)"
        )

    def _retried(self, run: RunState, control: Retry, error: Exception) -> Requeued | Ended:
        outcome: Outcome = classify_error(control, run.record, run.lease, self._options, self._random)
        assert isinstance(outcome, Requeued | Ended)
        return replace(outcome, error=encode_failure(error, run.record.attempt))

    def _snoozed(self, run: RunState, control: Snooze, error: Exception) -> Requeued | Ended:
        """The pause holds for all tasks of the agent; an event that has waited too long is a dead letter."""
        after = to_duration_ms(control.after, "Snooze(after)")
        self._throttle.pause(after)
        if self._waited(run.record) >= self._give_up:
            return failed_outcome(error, run.record, run.lease, self._options)
        return Requeued(run.lease, after, counted=False, error=encode_failure(error, run.record.attempt))

    def _waited(self, record: Record) -> int:
        """Ms from its arrival until this run was due, by the store's clock.

        The store does not know when a task was revived: from then on, the first throttled run in this process counts.
        """
        if not record.history.earlier:
            return record.due - record.added
        if len(self._revived) >= _MAX_REVIVED:
            self._revived.clear()
        return record.due - self._revived.setdefault(record.uuid, record.due)
