"""The configuration of a runtime, and the checks of what users give for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from random import Random

from onthedot.client.client import ClientConfig, StoreClient
from onthedot.clock.durations import Duration, to_seconds
from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.engine.heartbeat import HeartbeatDelegate
from onthedot.engine.worker import Worker
from onthedot.events.component_session import SessionWatcher
from onthedot.events.settings import Events
from onthedot.executors.contract import Executor
from onthedot.model.executor_names import ASYNC, PROCESS, THREAD
from onthedot.model.uuid7 import new_uuid
from onthedot.model.value_errors import SettingError
from onthedot.observability.events import Observer
from onthedot.observability.logs import LogObserver
from onthedot.observability.meter import Meter
from onthedot.stores.contract import Store


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """All values of one runtime. A change is another config: ``runtime.use(replace(runtime.config, url=…))``.

    name: of the app or scheduler; several share a store by it
    url: of the store; None: the environment and the default decide when the store is first used
    logs: the observer that writes the log
    meter: counts what the worker does, for metrics and for the series of the store; None: nothing is counted
    observers: others, which get the same events
    slots: how many tasks run at once, by executor
    one_pool: the slots of "async" are for the tasks of all executors together
    claim_batch: how many tasks one claim takes at most; None: as many as there are free slots
    poll_interval: seconds between looks at the store without a hint
    stop_timeout: seconds that running tasks get at a stop; None: no limit
    lease_ms: longest lease of the worker's session; None: the store's own
    keep_pending_on_stop: pending tasks of a memory store are kept for the next start
    only_sources: the worker runs these sources only; None: all
    heartbeat_delegate: the supervisor, which sends heartbeats for this process
    session_watcher: the supervisor, which ends the sessions of this process's components when it dies
    without: the kinds of components that do not run here
    client_factory: makes the clients of the store
    worker_factory: makes the worker
    clock: time, for everything but the store's server
    random: chance, such as the jitter of a backoff
    new_uuid: makes the ids of tasks and sessions
    lifespan: surrounds the worker; what it yields is ``app.state``
    include: modules to import at a start, for the tasks that they declare
    executors: the user's own, by name
    module: where the app was made
    max_kept: how many ended tasks the store keeps
    has_events: its users publish events; a scheduler has no verb for that
    events: how events are published and received
    max_pending: how many pending tasks there may be; None: no limit
    count_from_start: ``status()`` never waits for the store, not even the first time
    """

    name: str
    url: str | None
    logs: LogObserver
    slots: Mapping[str, int]
    one_pool: bool = False
    claim_batch: int | None = None
    poll_interval: float = 10.0
    stop_timeout: float | None = None
    lease_ms: int | None = None
    keep_pending_on_stop: bool = False
    only_sources: frozenset[str] | None = None
    heartbeat_delegate: HeartbeatDelegate | None = None
    session_watcher: SessionWatcher | None = None
    without: frozenset[str] = frozenset()
    client_factory: Callable[[Store, ClientConfig], StoreClient] = StoreClient
    worker_factory: Callable[..., Worker] = Worker
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    new_uuid: Callable[[], str] = new_uuid
    lifespan: Callable[[], AbstractAsyncContextManager[object]] | None = None
    include: tuple[str, ...] = ()
    executors: Mapping[str, Executor] = field(default_factory=dict[str, Executor])
    module: str = "__main__"
    max_kept: int = 1_000_000
    max_pending: int | None = None
    has_events: bool = True
    events: Events = field(default_factory=Events)
    count_from_start: bool = False
    meter: Meter | None = field(default_factory=Meter)
    observers: tuple[Observer, ...] = ()


def check_poll_interval(value: Duration) -> float:
    interval = to_seconds(value, "poll_interval")
    if interval <= 0:
        raise SettingError("poll_interval must be more than 0 seconds: it is the fallback under wake-ups")
    return interval


def check_stop_timeout(value: Duration | None) -> float | None:
    return None if value is None else to_seconds(value, "stop_timeout")


def slots_by_executor(
    concurrency: int, threads: int | None = None, processes: int | None = None, max_workers: int | None = None
) -> dict[str, int]:
    """How many tasks of each executor run in this process at once."""
    cores = os.cpu_count() or 1
    given = {"concurrency": concurrency, "threads": threads, "processes": processes, "max_workers": max_workers}
    for name, total in given.items():
        if total is not None and (not isinstance(total, int) or isinstance(total, bool) or total < 1):
            raise SettingError(f"{name} must be a whole number from 1, not {total!r}")
    return {
        ASYNC: concurrency,
        THREAD: threads or max_workers or min(32, cores + 4),
        PROCESS: processes or max_workers or cores,
    }
