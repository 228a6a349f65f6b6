"""The program of a pool child: it finds tasks by name, runs them one by one and maps errors to outcomes."""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import logging
import os
import random as randomness
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import copy_context
from dataclasses import replace
from typing import Any

from onthedot.definitions.consumers import ConsumerDefinition, TaskConsumerRegistry
from onthedot.definitions.sources import Source
from onthedot.errors import DeclarationError
from onthedot.executors.processes.messages import (
    BootMessage,
    FrameReader,
    FromChild,
    ProgressMessage,
    RaisedMessage,
    ReadyMessage,
    RefusedMessage,
    ReturnedMessage,
    RunMessage,
    frame,
    read_to_child,
)
from onthedot.executors.processes.remote_errors import control_name
from onthedot.forks import register_fork_hooks
from onthedot.model.context import RunState, set_current
from onthedot.model.durable_context import DurableRunProtocol
from onthedot.model.error_policy import outcome_for_error
from onthedot.model.failures import NOT_STORED, encode_failure
from onthedot.model.streams import StreamRunProtocol
from onthedot.model.traces import TraceContext
from onthedot.runtime import runtime
from onthedot.runtime.lifespan import open_lifespan
from onthedot.runtime.user_code import ImportState, enter_location, load_modules, load_script
from onthedot.stores.capabilities import AsyncTransactions, Outbox, capability, find_capability
from onthedot.stores.contract import Ended, Lease, NewEvent, Outcome, Record, Requeued, Verdict


class PoolChild:
    """Answers run messages one at a time. The child ends with its pipe."""

    def __init__(self, pipe: socket.socket, boot: BootMessage) -> None:
        self._pipe = pipe
        self._boot = boot
        self._lock = threading.Lock()  # a task's threads may report progress
        self._pid = os.getpid()
        self._random = randomness.Random()
        self._loop = asyncio.Runner()
        self._exit_stack = AsyncExitStack()
        self._runtime: runtime.Runtime | None = None
        self._found: dict[str, Source] = {}

    def serve(self) -> None:
        frames = FrameReader(read_to_child)
        with self._loop:
            if not self._start():
                return
            while data := self._pipe.recv(65536):
                for message in frames.feed(data):
                    assert isinstance(message, RunMessage)
                    self._send(copy_context().run(self._run, message))
            self._loop.run(self._exit_stack.aclose())

    def _send(self, message: FromChild) -> None:
        if os.getpid() != self._pid:  # a fork made by the task returned here instead of ending
            os._exit(0)
        with self._lock:
            self._pipe.sendall(frame(message))

    # -- start

    def _start(self) -> bool:
        try:
            _import_code(self._boot)
            for each in runtime.runtimes_named(self._boot.app):
                self._enter(each)
        except BaseException as error:  # noqa: BLE001 - sent to the worker, which waits for this child
            self._send(RefusedMessage(encode_failure(error, 1)))
            return False
        self._send(ReadyMessage(self._pid))
        return True

    def _enter(self, app: runtime.Runtime) -> None:
        """Enters the app's lifespan once per child, with the store of the worker."""
        if self._runtime is None:
            self._runtime = app
            app.use(replace(app.config, url=self._boot.url))
            if app.config.lifespan is not None:
                app.state = self._loop.run(self._exit_stack.enter_async_context(open_lifespan(app.config.lifespan)))
                app.lifespan_entered = True

    # -- finding

    def _find(self, call: RunMessage) -> Source:
        """Finds a source in the module that declares it, else in the script, which may declare functions of others."""
        name = call.record.source
        if name not in self._found:
            found = self._known(name)
            if found is None and call.module != "__main__":
                load_modules([call.module])
                found = self._known(name)
            if found is None:
                load_script(self._boot.code)
                found = self._known(name)
            if found is None:
                raise DeclarationError(not_found(name, call.module, "its process"))
            self._found[name] = found
        return self._found[name]

    def _known(self, name: str) -> Source | None:
        for app in runtime.runtimes_named(self._boot.app):
            if (source := app.sources.get(name)) is not None:
                self._enter(app)
                return source
        consumer = TaskConsumerRegistry.find(name)  # of a Scheduler, which may not exist in this process
        if consumer is None:
            return None
        return ConsumerDefinition(consumer)

    # -- running

    def _run(self, call: RunMessage) -> ReturnedMessage | RaisedMessage | RefusedMessage:
        try:
            source = self._find(call)
        except BaseException as error:  # noqa: BLE001 - sent to the worker, which waits for this task
            return RefusedMessage(encode_failure(error, call.record.attempt))
        run = RunState(source, call.record, call.lease, self)
        run.deadline_ms = call.deadline
        set_current(run)
        self._enter_trace(call)
        try:
            run.arguments, run.headers = source.decode(call.record.body)
            value = source.call(dict(run.arguments))
            if inspect.isawaitable(value):
                value = self._loop.run(_awaited(value), context=copy_context())
            return self._returned(run, value)
        except BaseException as error:  # noqa: BLE001 - whatever a task raises fails that task only
            return self._raised(run, error)

    def _enter_trace(self, call: RunMessage) -> None:
        """Spans of the function continue the span of the run, which the worker has made."""
        if call.trace is None or self._runtime is None:
            return
        tracing = self._runtime.find_tracing()
        if tracing is not None:
            tracing.enter(TraceContext(*call.trace))

    def _returned(self, run: RunState, value: object) -> ReturnedMessage:
        adds = tuple(run.spawned or ())
        events = tuple(run.published or ())
        if value is None:
            return ReturnedMessage(b"", adds, events)
        try:
            return ReturnedMessage(run.source.encode(value), adds, events)
        except ValueError as error:
            return ReturnedMessage(NOT_STORED, adds, events, str(error))

    def _raised(self, run: RunState, error: BaseException) -> RaisedMessage:
        if type(error) is MemoryError and self._boot.memory_limit is not None:  # Python gives it no message
            text = f"its process may use {self._boot.memory_limit:,} bytes of address space (memory_limit)"
            error.args = ("; ".join([*map(str, error.args), text]),)
        outcome, error = outcome_for_error(error, run.record, run.lease, run.source.options, self._random)
        assert isinstance(outcome, Requeued | Ended)
        failure = outcome.error or encode_failure(error, run.record.attempt)
        return RaisedMessage(outcome, failure, control_name(error))

    # -- reports of running tasks

    @property
    def log(self) -> logging.Logger:
        if self._runtime is None:
            return logging.getLogger("onthedot.task")
        return self._runtime.logs.task.logger

    def progress(self, lease: Lease, done: float, total: float) -> None:  # noqa: ARG002 - one task runs at a time
        self._send(ProgressMessage(done, total))

    def has_event_loop(self) -> bool:
        return asyncio._get_running_loop() is not None

    async def results(self, record: Record, page: int) -> Sequence[object]:  # noqa: ARG002 - refused for any page
        raise _refused_here(record)

    def results_in_thread(self, record: Record, page: int) -> Sequence[object]:  # noqa: ARG002 - as above
        raise _refused_here(record)

    def encode_events(self, events: Sequence[Any], verb: str) -> Sequence[NewEvent]:
        assert self._runtime is not None
        capability(self._runtime.store, Outbox, verb)
        return self._runtime.encode_events(events, verb)

    def settle_in(self, connection: object, outcome: Outcome) -> Verdict:
        assert self._runtime is not None
        return self._runtime.portal.in_transaction(lambda store: store.settle_in(connection, outcome))

    async def settle_awaited(self, connection: object, outcome: Outcome) -> Verdict:
        assert self._runtime is not None
        if find_capability(self._runtime.store, AsyncTransactions) is None:
            return self.settle_in(connection, outcome)
        return await self._runtime.portal.in_transaction_awaited(
            lambda store: store.settle_awaited(connection, outcome)
        )

    def durable_run(self, run: RunState, verb: str) -> DurableRunProtocol:
        raise TypeError(
            f'{verb} does not work in executor="process", where "{run.record.source}" runs: call the process task from '
            "an async one with ctx.run"
        )

    def stream_run(self, run: RunState) -> StreamRunProtocol:
        raise TypeError(f'"{run.record.source}" is a stream, which runs on the event loop of its worker')


def _refused_here(record: Record) -> RuntimeError:
    return RuntimeError(
        f"{record.source} runs in a process of its own, which does not read results; read them in an async task, and "
        "pass this one what it needs"
    )


async def _awaited(value: object) -> object:
    return await value  # type: ignore[misc]


def not_found(name: str, module: str, where: str) -> str:
    if ImportState.ended:
        return (
            f"task {name!r} is not known in {where}: the import stopped at {ImportState.ended}, which acts; declare "
            "the task above that line, or put what acts under `if __name__ == '__main__':`"
        )
    return (
        f"task {name!r} is not known in {where}, although {module} was imported there: declare it at module level, not "
        "inside a function or under `if __name__ == '__main__':`, or give it executor='thread' (start(threading=True))"
    )


def _import_code(boot: BootMessage) -> None:
    if boot.memory_limit is not None:
        _limit_memory(boot.memory_limit)
    enter_location(boot.code)
    if "__main__" in boot.modules:
        load_script(boot.code)
    load_modules(name for name in boot.modules if name != "__main__")


def _host(pipe: socket.socket, boot: BootMessage) -> None:
    """Runs as a background process instead of a pool child."""
    from onthedot.runtime.background_process import run_hosted

    try:
        _import_code(boot)
        app = _app(boot)
    except BaseException as error:  # noqa: BLE001 - sent to the starter
        pipe.sendall(frame(RefusedMessage(encode_failure(error, 1))))
        return
    app.use(replace(app.config, url=boot.url))
    run_hosted(app, pipe)


def _app(boot: BootMessage) -> runtime.Runtime:
    for app in runtime.runtimes_named(boot.app):
        return app
    raise DeclarationError(
        f"app {boot.app!r} is not made by the import of {', '.join(boot.modules)}: make it at module level, or use "
        "start(threading=True)"
    )


def _limit_memory(limit: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class _IgnoredSignals:
    """SIGINT and SIGTERM have no effect in a pool child: the worker decides when a task ends.

    A terminal's Ctrl+C and the SIGTERM of systemd reach every process of a group. The handler is a function, because
    programs that a task starts would inherit SIG_IGN.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def install(self) -> None:
        for number in self._SIGNALS:
            signal.signal(number, self._ignore)
        register_fork_hooks(self)

    def after_fork(self) -> None:
        """A fork made by a task ends on signals again."""
        for number in self._SIGNALS:
            if signal.getsignal(number) == self._ignore:
                signal.signal(number, signal.SIG_DFL)

    def _ignore(self, *_: object) -> None: ...


def main(descriptor: int | str) -> None:
    faulthandler.enable()  # writes the stacks to stderr if the child crashes
    _IgnoredSignals().install()  # kept alive as the handler
    with socket.socket(fileno=int(descriptor)) as pipe, suppress(ConnectionError):  # the worker has closed the pipe
        boot = _receive_boot(pipe)
        if boot is not None and boot.hosts:
            _host(pipe, boot)
        elif boot is not None:
            PoolChild(pipe, boot).serve()


def _receive_boot(pipe: socket.socket) -> BootMessage | None:
    frames = FrameReader(read_to_child)
    while data := pipe.recv(65536):
        for message in frames.feed(data):
            assert isinstance(message, BootMessage)
            return message
    return None
