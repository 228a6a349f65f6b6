"""Settling the outcomes of a turn that the store could not carry out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from onthedot.clock.protocol import Clock
from onthedot.engine.chores import KEEP_FAILED
from onthedot.engine.failure_effects import FailureEffects
from onthedot.engine.outcome_buffer import Entry, OutcomeBuffer
from onthedot.engine.session import WorkerSession
from onthedot.errors import StoreError
from onthedot.model.failures import encode_reason
from onthedot.observability.events import Observer
from onthedot.stores.contract import Ended, Outcome, Store


@dataclass(eq=False)
class OutcomeIsolation:
    """Finds the outcomes that cannot be stored, so that they affect their own tasks only.

    Repeated settles are safe: the turn that failed may have settled some of them, and a lease settles once.
    """

    store: Store
    session: WorkerSession
    outcomes: OutcomeBuffer
    clock: Clock
    observer: Observer
    failure_effects: FailureEffects

    async def settle(self) -> bool:
        """Settles the outcomes of the buffer in halves. True: one could not be stored, and its task ended as failed.

        If the store fails, or refuses the failed end too, the outcome is not the cause, and the error is raised.
        """
        groups = _halves(self.outcomes.take())
        settled: list[Entry] = []
        is_found = False
        try:
            while groups:
                group = groups[0]
                try:
                    await self._send(group)
                    settled += group
                except StoreError:
                    raise
                except Exception as error:  # noqa: BLE001 - a store may raise anything for a value that it cannot keep
                    if len(group) > 1:
                        groups[:1] = _halves(group)
                        continue
                    settled.append(await self._fail(group[0], error))
                    is_found = True
                groups.pop(0)
        finally:
            self.outcomes.put_back([entry for group in groups for entry in group])
            self.outcomes.settle_again(settled)
        return is_found

    async def _send(self, entries: Sequence[Entry]) -> None:
        turn = await self.store.turn(self.session.id, [outcome for outcome, _ in entries], None)
        self.observer.tasks_settled(entries, turn.verdicts, self.clock.now())

    async def _fail(self, entry: Entry, error: Exception) -> Entry:
        """Settles the first end that the store takes; if it takes none, the error is raised."""
        ends = self._ends(entry, error)
        while True:
            ended: Entry = (ends.pop(0), entry[1])
            try:
                await self._send([ended])
            except StoreError:
                raise
            except Exception:
                if ends:  # its effects may be the cause
                    continue
                raise
            self.observer.outcome_not_stored(entry, error)
            return ended

    def _ends(self, entry: Entry, error: Exception) -> list[Outcome]:
        """In place of an outcome that cannot be stored, the best one first."""
        outcome, run = entry
        if isinstance(outcome, Ended) and outcome.effects is not None:
            return [replace(outcome, effects=None), self._failed(entry, error)]
        failed = self._failed(entry, error)
        if run is None:
            return [failed]
        best = self.failure_effects.attach(run.record, failed)
        return [failed] if best is failed else [best, failed]

    def _failed(self, entry: Entry, error: Exception) -> Ended:
        outcome, run = entry
        keep = KEEP_FAILED
        attempt = 1
        if run is not None:
            keep = run.source.options.keep_failed
            attempt = run.record.attempt
        reason = f"its outcome cannot be stored: {type(error).__name__}: {error}"
        failure = encode_reason(reason, attempt, error_type="OutcomeNotStored")
        return Ended(outcome.lease, "failed", failure, keep)


def _halves(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    middle = len(entries) // 2
    return [half for half in (entries[:middle], entries[middle:]) if half]
