"""Events of the engine. Logs, the meter and tracing implement `Observer`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from onthedot.codec.body import Headers
from onthedot.codec.task_failure import TaskFailure
from onthedot.model.traces import RunSpan
from onthedot.stores.contract import NewTask, OutboxEvent, Outcome, Record, StoreIdentity, Verdict


class StartedRun(Protocol):
    """A run as observers see it; `started` in ms by the worker's clock. headers: once its body was decoded."""

    @property
    def record(self) -> Record: ...
    @property
    def started(self) -> float: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def span(self) -> RunSpan | None: ...


Settled: TypeAlias = tuple[Outcome, StartedRun | None]
"""An outcome and its run; None for a chore or a released task."""


class Observer:
    """Receives events. Every method has no effect here: an observer overrides those that it needs.

    Calls come in batches and on the event loop, so they must return quickly. What an observer does per task must depend
    on a check that it makes once per call.
    """

    def flush(self) -> None:
        """The worker or client of this event loop ends: what the observer has kept back is written now."""

    def session_opened(self, session: str) -> None:
        """The worker has a new session; later events belong to it."""

    def session_lost(self, session: str) -> None:
        """The session is dead or fenced; the worker continues with a new one."""

    def data_lost(self, store: str, before: StoreIdentity, after: StoreIdentity) -> None:
        """The store has another data set, or an older state of the same."""

    def tasks_added(self, tasks: Sequence[NewTask]) -> None:
        """Tasks are in the store that were not there before."""

    def task_differs(self, record: Record, fields: Sequence[str]) -> None:
        """A task was added with the uuid of `record`, which remains; `fields` names what is different."""

    def event_differs(self, event_id: str, event_type: str) -> None:
        """An event was published with the id of another, which remains."""

    def event_unreadable(self, place: str, error: Exception) -> None:
        """A result event on the bus cannot be read; it is passed over. place: topic, partition and offset."""

    def event_not_signalled(self, event_id: str, event_type: str, error: Exception) -> None:
        """An event of ``app.on_event`` could not send its signal; it is passed over."""

    def loop_blocked(self, uuid: str) -> None:
        """Sync code on an event loop waits for the end of a task: the loop stands still meanwhile."""

    def tasks_started(self, runs: Sequence[StartedRun]) -> None:
        """Claimed tasks were queued for their executors."""

    def tasks_settled(self, settled: Sequence[Settled], verdicts: Sequence[Verdict], now: float) -> None:
        """The store has answered one turn: one verdict per outcome, in the same order."""

    def error_classified(self, record: Record, error: BaseException, outcome: Outcome, max_retries: int) -> None:
        """A run has raised, and `outcome` follows from it."""

    def chores_ended(self, records: Sequence[Record]) -> None:
        """These tasks end without a run; `record.history.reason` says why."""

    def timeout_ignored(self, record: Record, thread: str) -> None:
        """A run has timed out and continues in `thread`, because a thread cannot be stopped."""

    def cancel_ignored(self, record: Record) -> None:
        """A run continues although it was cancelled; the worker stops without it."""

    def result_not_stored(self, record: Record, error: Exception) -> None:
        """A run has succeeded with a result that cannot be encoded."""

    def outcome_not_stored(self, settled: Settled, error: Exception) -> None:
        """The store could not keep the outcome of a run, so its task has ended as failed."""

    def effects_not_made(self, record: Record, error: Exception) -> None:
        """A task ends as failed without the effects that this should have, such as a dead letter."""

    def outcomes_dropped(self, count: int) -> None:
        """The worker has stopped while the store could not be reached."""

    def schedule_registered(self, schedule: str, next_at: int | None) -> None:
        """A schedule of this process's code is in the store; ms of its next window."""

    def schedule_taken_over(self, schedule: str) -> None:
        """A schedule that was created at run time is declared by code now."""

    def schedule_fired(self, schedule: str, at: int) -> None:
        """The tasks of a window were added; `at` is its nominal time in ms."""

    def schedule_failed(self, schedule: str, error: Exception) -> None:
        """The rule of a schedule has raised; other schedules continue."""

    def windows_skipped(self, schedule: str, reason: Literal["overlap", "missed", "paused"], windows: int) -> None:
        """Windows of a schedule did not run."""

    def clock_stepped(self, ms: float) -> None:
        """The store's clock was set, ahead (positive) or back."""

    def store_slow(self, operation: str, ms: float) -> None:
        """An operation has succeeded, and has taken longer than it should."""

    def store_failed(self, operation: str, error: BaseException) -> None:
        """An operation has failed and will be repeated. Called once per attempt."""

    def store_recovered(self, operation: str) -> None:
        """An operation has succeeded after a failure."""

    def relay_started(self, bus: str) -> None:
        """A relay sends the events of the outbox to this bus from now on."""

    def component_lost(self, component: str, session: str) -> None:
        """The session of a relay or of subscriptions is over; others have its buckets, and it continues as another."""

    def buckets_changed(self, buckets: Sequence[int]) -> None:
        """The relay of this process owns these buckets now."""

    def events_sent(self, topic: str, count: int, ms: float) -> None:
        """The bus has a batch of events, after so many milliseconds."""

    def event_refused(self, refused: OutboxEvent, error: str) -> None:
        """The bus refuses an event: it is failed, and later ones of its key in its topic wait."""

    def topic_unavailable(self, topic: str, seconds: float, error: Exception) -> None:
        """Events of the topic wait so many seconds; those of other topics are sent."""

    def agent_started(self, agent: str, topics: Sequence[str]) -> None:
        """The subscription of an agent reads these topics from now on."""

    def agent_throttled(self, agent: str, seconds: float) -> None:
        """Another side asks an agent to wait: this process starts none of its tasks for so long."""

    def events_received(self, agent: str, outcome: Literal["skipped", "duplicate"], count: int) -> None:
        """Records that have made no task: others are for another agent, or copies."""

    def event_dead(self, event: str, agent: str, failure: TaskFailure) -> None:
        """An agent could not handle an event: its dead letter is written with the end of its task."""

    def waiter_resumed(self, ms: float) -> None:
        """A waiter was woken: all that its resume handle expects had come so long after the handle was created."""

    def batch_part_ended(self, kind: str, state: Literal["succeeded", "failed", "cancelled"], ms: float | None) -> None:
        """A part of a batch has ended. kind: of the batch, else its task; ms: of its last run, None if it had none."""

    def batch_responded(self, kind: str, ms: float) -> None:
        """The first part of a batch with items has ended, so long after the batch was added."""

    def bus_failed(self, operation: str, error: Exception) -> None:
        """The bus does not answer, and the operation goes on or is repeated. Called about once per second."""

    def bus_recovered(self, operation: str) -> None:
        """An operation has succeeded after the bus did not answer."""


class Observers(Observer):
    """Passes each event to several observers. One that raises is switched off after one ERROR."""

    def __init__(self, observers: Sequence[Observer], log: logging.LoggerAdapter[logging.Logger]) -> None:
        self._log = log
        self._activate(observers)

    def _activate(self, observers: Sequence[Observer]) -> None:
        self._active = tuple(observers)
        self.by_event: dict[str, list[Observer]] = {  # those that override it
            event: [each for each in observers if getattr(type(each), event) is not getattr(Observer, event)]
            for event in EVENTS
        }

    def switch_off(self, observer: Observer, event: str, error: Exception) -> None:
        self._activate([each for each in self._active if each is not observer])
        name = type(observer).__name__
        self._log.error("observer %s is switched off: %s failed: %s", name, event, error, exc_info=error)


def _passed_on(event: str) -> Callable[..., None]:
    def pass_on(self: Observers, *args: object) -> None:
        for observer in self.by_event[event]:
            try:
                getattr(observer, event)(*args)
            except Exception as error:  # noqa: BLE001 - an observer never ends a task
                self.switch_off(observer, event, error)

    return pass_on


EVENTS: tuple[str, ...] = tuple(name for name in vars(Observer) if not name.startswith("_"))
for _event in EVENTS:
    setattr(Observers, _event, _passed_on(_event))
