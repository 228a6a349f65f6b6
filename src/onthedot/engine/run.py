"""One run of a claimed task, as the engine sees it."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

from onthedot.clock.protocol import Timer
from onthedot.executors.contract import Executor
from onthedot.model.context import RunState

StopCause: TypeAlias = Literal["cancel", "timeout", "shutdown", "lost"]


class Run(RunState, eq=False, kw_only=True):
    """A run from its claim to its outcome."""

    executor: Executor
    started: float  # ms, by the worker's clock
    serving_task: asyncio.Task[None] | None = None  # the asyncio task that runs it; None while it is queued
    stop_cause: StopCause | None = None  # set when it is ended from outside
    timer: Timer | None = None
    ended: bool = False  # its outcome is known, even if a thread still executes the function
