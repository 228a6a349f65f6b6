"""One run of a claimed task, as the engine sees it."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

from onthedot.clock.protocol import Timer
from onthedot.definitions.sources import Source
from onthedot.executors.contract import Executor
from onthedot.model.context import ReportSink, RunState
from onthedot.stores.contract import Lease, Record

StopCause: TypeAlias = Literal["cancel", "timeout", "shutdown", "lost"]


class Run(RunState):
    """A run from its claim to its outcome."""

    serving_task: asyncio.Task[None] | None = None  # the asyncio task that runs it; None while it is queued
    stop_cause: StopCause | None = None  # set when it is ended from outside
    timer: Timer | None = None
    ended: bool = False  # its outcome is known, even if a thread still executes the function

    def __init__(
        self, source: Source, record: Record, lease: Lease, reports: ReportSink, executor: Executor, started: float
    ) -> None:
        self.source = source  # without super(): one call less per task
        self.record = record
        self.lease = lease
        self.reports = reports
        self.executor: Executor = executor
        self.started: float = started
