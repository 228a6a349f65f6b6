"""The end of a run whose task goes on later."""

from __future__ import annotations

from msgspec.structs import replace

from onthedot.model.context import RunState
from onthedot.model.failures import is_a
from onthedot.stores.contract import Effects, Requeued, Suspended


class Suspension(BaseException):
    """Leaves the function of a task that sleeps or waits; the runner settles `outcome`. `finally` blocks run."""

    def __init__(self, outcome: Suspended | Requeued) -> None:
        super().__init__("the task is suspended: let BaseException pass")
        self.outcome: Suspended | Requeued = outcome


def with_events(outcome: Suspended | Requeued, run: RunState) -> Suspended | Requeued:
    """The outcome with the events that the run has published: they leave before the task waits for an answer."""
    if run.published is None:
        return outcome
    tasks = () if outcome.effects is None else outcome.effects.tasks
    return replace(outcome, effects=Effects(tasks, tuple(run.published)))


def find_suspension(error: BaseException) -> Suspension | None:
    """The suspension that a function has raised, also through a TaskGroup; None: it has raised an error."""
    if is_a(error, Suspension):
        return error
    if not is_a(error, BaseExceptionGroup):
        return None
    suspensions, others = error.split(Suspension)
    if suspensions is None or others is not None:
        return None
    return find_suspension(suspensions.exceptions[0])
