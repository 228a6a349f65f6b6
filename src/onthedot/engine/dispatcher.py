"""Distributes the answer of a claim: tasks to the runner, chores to their outcomes, schedules to the firer."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from onthedot.clock.protocol import Clock
from onthedot.definitions.sources import Source, Sources
from onthedot.engine.chores import outcome_for_chore
from onthedot.engine.handoff import Handoff
from onthedot.engine.linked_tasks import LinkedTasks
from onthedot.engine.outcome_buffer import OutcomeBuffer
from onthedot.engine.run import Run
from onthedot.engine.runner import Runner
from onthedot.engine.schedule_firer import ScheduleFirer
from onthedot.engine.session import WorkerSession
from onthedot.engine.slots import Slots
from onthedot.errors import StoreError
from onthedot.executors.contract import Executor
from onthedot.model.context import ReportSink
from onthedot.observability.events import Observer
from onthedot.stores.contract import ClaimResult, Effects, Lease, LeasedTasks, Outcome, Record, Requeued

_SEARCH_AGAIN = 0.1  # seconds


@dataclass(eq=False)
class Dispatcher:
    """Starts what a claim has returned. It never waits for a task."""

    sources: Sources
    executors: Mapping[str, Executor]
    session: WorkerSession
    slots: Slots
    runner: Runner
    outcomes: OutcomeBuffer
    reports: ReportSink
    handoff: Handoff | None
    firer: ScheduleFirer
    clock: Clock
    observer: Observer
    linked: LinkedTasks | None = None

    async def dispatch(self, claim: ClaimResult | None) -> bool:
        """True: the next turn has work now."""
        if claim is None:
            return False
        if claim.tasks:
            self.start(claim)
        if self.handoff is not None:
            self.handoff.accept()  # after the start: the same tasks may have arrived in both ways
        if claim.chores:
            await self._end_chores(claim)
        has_fired = False
        if claim.schedules and not self.slots.closed:
            fired = await self.firer.fire(claim.schedules, claim.now)
            has_fired = fired.changed
            self.slots.wake(fired.sources)
        return bool(has_fired or claim.more or claim.chores or self.slots.has_work() or self.runner.has_held())

    async def _end_chores(self, claim: ClaimResult) -> None:
        reasons: Mapping[str, str] = {}
        if self.linked is not None and any(record.links is not None for record in claim.chores):
            reasons = await self.linked.reasons([record for record in claim.chores if record.links is not None])
        effects, unknown = await self._effects_of_cancel(claim.chores)
        ended: list[Record] = []
        for record in claim.chores:
            lease = Lease(record.uuid, claim.fence, self.session.id)
            if record.uuid in unknown:
                self.outcomes.add((Requeued(lease, None, counted=False), None))  # it stays a chore
                continue
            reason = reasons.get(record.uuid, "")
            outcome: Outcome = outcome_for_chore(record, lease, self.sources.get(record.source), reason)
            if record.links is not None and self.linked is not None:
                outcome = self.linked.adjust(record, outcome)
            if record.uuid in effects:
                outcome = replace(outcome, effects=effects[record.uuid])
            self.outcomes.add((self.runner.failure_effects.attach(record, outcome), None))
            ended.append(record)
        self.observer.chores_ended(ended)

    async def _effects_of_cancel(self, chores: Sequence[Record]) -> tuple[Mapping[str, Effects], Collection[str]]:
        """The effects of the ends of cancelled tasks; and the tasks for which the store could not answer."""
        started = [each for each in chores if each.history.reason == "cancel" and each.history.started is not None]
        if self.linked is None or not started:
            return {}, ()
        try:
            return await self.linked.effects_of_cancel(started), ()
        except StoreError as error:
            self.observer.store_failed("finding the children of cancelled tasks", error)
            await asyncio.sleep(_SEARCH_AGAIN)  # the next turn returns the same chores
            return {}, {record.uuid for record in started}

    def start(self, leased: ClaimResult | LeasedTasks) -> None:
        """Starts leased tasks, or requeues them if their source is gone or the worker stops."""
        now = self.clock.now()
        session = self.session.id
        runs: list[Run] = []
        name = ""
        source: Source | None = None
        executor: Executor | None = None
        for record in leased.tasks:
            lease = Lease(record.uuid, leased.fence, session)
            if record.source != name:  # tasks of one source usually come together
                name = record.source
                source = self.sources.get(name)
                executor = None if source is None else self.executors[source.executor]
            if source is None or executor is None or self.slots.closed:
                self.outcomes.add((Requeued(lease, None, counted=False), None))
            elif not self.runner.adopt_lease(lease):
                runs.append(Run(source, record, lease, self.reports, executor=executor, started=now))
        ahead = self.slots.take([run.record.source for run in runs])
        if ahead:
            runs.sort(key=lambda run: self.slots.is_async(run.record.source))  # those that were claimed ahead are last
        self.runner.start(runs, ahead)
        self.observer.tasks_started(runs)
