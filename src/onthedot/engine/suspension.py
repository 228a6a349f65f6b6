"""The end of a run whose task goes on later."""

from __future__ import annotations

from onthedot.model.failures import is_a
from onthedot.stores.contract import Requeued, Suspended


class Suspension(BaseException):
    """Leaves the function of a task that sleeps or waits; the runner settles `outcome`. `finally` blocks run."""

    def __init__(self, outcome: Suspended | Requeued) -> None:
        super().__init__("the task is suspended: let BaseException pass")
        self.outcome: Suspended | Requeued = outcome


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
