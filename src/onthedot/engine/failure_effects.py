"""The effects of ends as failed: an effect factory adds them to the outcomes of runs and of chores."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from onthedot.engine.config import OnFailed
from onthedot.observability.events import Observer
from onthedot.stores.contract import Effects, Ended, Outcome, Record

_NO_EFFECTS = Effects()


@dataclass(eq=False)
class FailureEffects:
    """Asks `WorkerConfig.on_failed` for the effects of an end that nobody wanted."""

    on_failed: OnFailed | None
    observer: Observer

    def attach(self, record: Record, outcome: Outcome) -> Outcome:
        """The outcome with these effects, too.

        A cancelled task has none, because a person wanted that; an expired one has them. If the factory raises, the
        task ends without: its end must not wait for anything.
        """
        if self.on_failed is None or not isinstance(outcome, Ended):
            return outcome
        if outcome.state != "failed" and record.history.reason != "expired":
            return outcome
        try:
            effects = self.on_failed(record, outcome)
        except Exception as error:  # noqa: BLE001 - reported
            self.observer.effects_not_made(record, error)
            return outcome
        return with_effects(outcome, effects)


def with_effects(outcome: Ended, effects: Effects) -> Ended:
    """The outcome with further effects."""
    if effects == _NO_EFFECTS:
        return outcome
    known = outcome.effects or _NO_EFFECTS
    return replace(outcome, effects=Effects(known.tasks + effects.tasks, known.events + effects.events))
