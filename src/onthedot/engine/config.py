"""The values that a worker is configured with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from onthedot.model.traces import TaskTracer
from onthedot.stores.contract import Effects, Ended, NewEvent, Record

OnFailed: TypeAlias = Callable[[Record, Ended], Effects]
"""The effect factory for tasks that end as failed, or expire. It reads the record only, and does no I/O."""

EncodeEvents: TypeAlias = Callable[[Sequence[Any], str], Sequence[NewEvent]]
"""Encodes events for the outbox, without I/O; the text is the call that publishes them, for errors."""


@dataclass(frozen=True)
class WorkerConfig:
    """Values, and functions of them; collaborators are arguments of `Worker`."""

    slots: Mapping[str, int]  # by executor
    lease_ms: int | None = None  # of the session; None: the store notices a death by itself
    app: str = ""
    store: str = ""  # its URL without a password, for log lines
    version: str = ""
    release: str = ""  # of the user's code
    tracer: TaskTracer | None = None  # makes a span per run
    one_pool: bool = False  # all executors share the slots of "async"
    claim_batch: int | None = None  # most tasks per claim; None: as many as there are free slots
    poll_interval: float = 10_000  # ms
    max_retained: int = 1_000_000  # ended tasks that the store keeps
    encode_events: EncodeEvents | None = None  # for ``ctx.publish``
    on_failed: OnFailed | None = None  # also for sources whose code is elsewhere: a chore may end here
