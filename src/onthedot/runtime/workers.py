"""Makes the worker of a runtime from its configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from onthedot.batches.coordinator import BatchWorker
from onthedot.engine.config import OnFailed, WorkerConfig
from onthedot.engine.heartbeat import TaskHeartbeatRunner
from onthedot.engine.repeated_calls import RepeatedCalls
from onthedot.engine.schedule_firer import ScheduleFirer
from onthedot.engine.worker import Worker
from onthedot.events.agent_failures import AgentFailures
from onthedot.events.resume_source import ResumeSource
from onthedot.flows.builtin import JoinSource, StopSource
from onthedot.flows.results import FlowTasks
from onthedot.flows.steps import DurableRuns
from onthedot.flows.streams import StreamRuns
from onthedot.model.traces import TaskTracer
from onthedot.operations.operations import Operations
from onthedot.runtime.executors import slots_of
from onthedot.runtime.heartbeat_thread import HeartbeatThread
from onthedot.runtime.settings import code_release, version
from onthedot.stores.capabilities import Outbox, find_capability
from onthedot.stores.masked_url import masked

if TYPE_CHECKING:
    from onthedot.runtime.runtime import Runtime

_STOPS = 10  # flows that a worker stops at once; not in the slots, which members of these flows may hold


def new_worker(
    runtime: Runtime,
    declare: Callable[[ScheduleFirer], Awaitable[None]],
    on_schedule_failed: Callable[[Exception], None],
) -> Worker:
    """The worker of a runtime whose executors are open. It knows the sources of the app and the built-in ones."""
    config = runtime.config
    store = runtime.store
    operations = Operations(store, runtime.registry.owner.client, config.clock)
    flows = operations.flows
    runtime.sources.put_builtin(JoinSource())
    runtime.sources.put_builtin(StopSource(flows.stop, flows.cancel), own_slots=_STOPS)
    runtime.sources.put_builtin(ResumeSource(runtime.find_outbox, config.events.prefect))
    tracing = runtime.find_tracing()
    observer = runtime.new_observer(*filter(None, [tracing]))
    runtime.batch_worker = BatchWorker(
        store,
        RepeatedCalls(observer, "reading the parts of a batch"),
        lambda uuids, reason: operations.cancel(*uuids, reason=reason),
        observer,
    )
    firer = ScheduleFirer(
        store, runtime.sources, runtime.schedules, config.clock, observer, on_schedule_failed, tracing
    )
    return config.worker_factory(
        _worker_config(runtime, tracing),
        store=store,
        sources=runtime.sources,
        executors=runtime.executors,
        firer=firer,
        schedules=runtime.schedules,
        declare=lambda: declare(firer),
        clock=config.clock,
        random=config.random,
        new_uuid=config.new_uuid,
        observer=observer,
        task_log=config.logs.task.logger,
        heartbeat_runner=HeartbeatThread() if config.clock.is_system else TaskHeartbeatRunner(),
        heartbeat_delegate=config.heartbeat_delegate,
        middleware=tuple(runtime.middleware),
        new_durable_run=DurableRuns(store, observer),
        new_stream_run=StreamRuns(store, observer),
        linked=FlowTasks(store, flows, config.new_uuid, runtime.result_decoder),
        meter=config.meter if config.clock.is_system else None,  # a driven clock jumps over minutes
        on_turn=runtime.status_counts.mark_stale if runtime.status_counts.watched else None,
        on_fatal=runtime.host.on_failed,
    )


def _worker_config(runtime: Runtime, tracer: TaskTracer | None) -> WorkerConfig:
    config = runtime.config
    lease_ms = runtime.store.traits.lease_ms
    if lease_ms is not None and config.lease_ms is not None:
        lease_ms = min(lease_ms, config.lease_ms)
    return WorkerConfig(
        slots={**config.slots, **{name: slots_of(config, each) for name, each in config.executors.items()}},
        lease_ms=lease_ms,
        app=config.name,
        store=masked(runtime.url),
        version=version(),
        release=code_release(),
        tracer=tracer,
        one_pool=config.one_pool,
        claim_batch=config.claim_batch,
        poll_interval=config.poll_interval * 1000,
        max_retained=config.max_kept,
        encode_events=runtime.encode_events,
        on_failed=_on_failed(runtime),
    )


def _on_failed(runtime: Runtime) -> OnFailed | None:
    """In every worker, since chores of agents may end in any. A store without an outbox has no tasks of agents."""
    if find_capability(runtime.store, Outbox) is None:
        return None
    config = runtime.config
    return AgentFailures(config.events, config.name, config.clock.now, runtime.new_observer()).effects
