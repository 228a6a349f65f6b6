"""Steps, sleeps, waits and children of the running task, for its own code."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from onthedot.clock.durations import Duration
from onthedot.model.signals import Signal

if TYPE_CHECKING:
    from onthedot.flows.calls import Call
    from onthedot.model.context import RunState

Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class DurableRunProtocol(Protocol):
    """The durable part of a run. It is created when the function first uses it."""

    def is_on_loop(self) -> bool:
        """Whether the caller runs on the event loop of the worker, as async tasks do."""
        ...

    def call(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """Runs a coroutine on that loop, for a sync task."""
        ...

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        connection: object = None,
    ) -> Coroutine[Any, Any, Any]:
        """connection: of the caller, in whose transaction the step is saved; None: it is saved by itself."""
        ...

    def step_sync(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        connection: object = None,
    ) -> Any: ...
    def sleep(self, duration: Duration) -> Coroutine[Any, Any, None]: ...
    def wait_any(self, names: tuple[str, ...], timeout: Duration | None, kind: Any) -> Coroutine[Any, Any, Signal]: ...
    def run(self, call: Call[R]) -> Coroutine[Any, Any, R]: ...
    def changed(self, renamed: Mapping[str, str], added: Collection[str], removed: Collection[str]) -> None: ...
    def finish(self) -> None:
        """The function has returned. Raises if that was wrong."""
        ...


class DurableContext:
    """The durable verbs of `TaskContext`."""

    _run: RunState

    @overload
    def step(
        self, name: str, function: Callable[Q, Awaitable[S]], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Coroutine[Any, Any, S]: ...
    @overload
    def step(
        self, name: str, function: Callable[Q, S], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Coroutine[Any, Any, S]: ...
    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Calls a function and saves its result under a name: later runs of this task return the saved result.

        A run that is repeated, after a crash, a retry, a sleep or a wait, starts the task's function from the top.
        Code between steps must only compute. A step that raises is not saved.

        Args:
            name: Name of the step; the second use of a name is another step.
            function: An async or sync function. Its result is stored by its annotation.
            args: Positional arguments of the function.
            kwargs: Its keyword arguments.

        ::

            receipt = await ctx.step("charge", charge, card)
        """
        return self._async_form("step").step(name, function, args, kwargs)

    @overload
    def step_in(
        self, connection: object, name: str, function: Callable[Q, Awaitable[S]], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Coroutine[Any, Any, S]: ...
    @overload
    def step_in(
        self, connection: object, name: str, function: Callable[Q, S], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Coroutine[Any, Any, S]: ...
    def step_in(
        self, connection: object, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Like `step`, saved in your own transaction: the effect of the step and its result both remain, or neither.

        The connection is not passed to the function by itself.

        Args:
            connection: Your connection to the database of the store, in a transaction.
            name: Name of the step.
            function: An async or sync function that works on the same connection.
            args: Positional arguments of the function.
            kwargs: Its keyword arguments.
        """
        return self._async_form("step_in").step(name, function, args, kwargs, _given(connection))

    def sleep(self, duration: Duration) -> Coroutine[Any, Any, None]:
        """Ends this run; the task runs again from the top after the time and passes this line. Steps stay saved.

        The worker is free meanwhile. The time is exact across crashes and deploys: it counts from the first call.

        Args:
            duration: Seconds or a timedelta.
        """
        return self._async_form("sleep").sleep(duration)

    @overload
    def wait_for(self, name: str, *, timeout: Duration | None = None) -> Coroutine[Any, Any, Any]: ...
    @overload
    def wait_for(self, name: str, *, timeout: Duration | None = None, type: type[T]) -> Coroutine[Any, Any, T]: ...
    def wait_for(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        type: Any = Any,  # noqa: A002 - what it is
    ) -> Coroutine[Any, Any, Any]:
        """Returns the payload of the first signal under a name that this task has not taken yet.

        If there is none, this run ends, and the task runs again from the top when it comes. ``app.signal(name)``
        reaches every task that waits under the name, ``handle.signal(name)`` one task.

        Args:
            name: Name of the signal.
            timeout: Seconds or a timedelta, then TimeoutError; None: without a limit.
            type: What the payload is read as, such as a dataclass; by default plain values.
        """
        return _payload(self._async_form("wait_for").wait_any((name,), timeout, type))

    def wait_any(self, *names: str, timeout: Duration | None = None) -> Coroutine[Any, Any, Signal]:
        """Returns the first signal under any of these names. To wait for all of them, wait for one after the other.

        Args:
            names: One to four names.
            timeout: Seconds or a timedelta, then TimeoutError; None: without a limit.
        """
        return self._async_form("wait_any").wait_any(names, timeout, Any)

    def run(self, call: Call[R]) -> Coroutine[Any, Any, R]:
        """Runs a task or a flow as a child of this task, and returns its result.

        This run ends, and the task runs again from the top when the child has ended; the worker is free meanwhile.
        Child and wait begin in one step. The child has its own retries, limits and executors. Raises `TaskFailed` if it
        fails, and `TaskCancelled` if it is cancelled. A later attempt of this task starts a new child, unless one has
        succeeded. Cancelling this task cancels the child.

        Args:
            call: A call of the same app, or a flow of up to 1,000 tasks.

        ::

            total = await ctx.run(group(resize.s(path) for path in paths) | add_up)
        """
        return self._async_form("run").run(call)

    def changed(
        self,
        *,
        renamed: Mapping[str, str] | None = None,
        added: Collection[str] = (),
        removed: Collection[str] = (),
    ) -> None:
        """Declares how this code differs from the one that has saved steps of this task. Before the first step.

        Args:
            renamed: New names of steps by their old ones; the saved results are used.
            added: Names of new steps between old ones.
            removed: Names of steps that are gone.
        """
        durable_run(self._run, "ctx.changed()").changed(renamed or {}, added, removed)

    def _async_form(self, verb: str) -> DurableRunProtocol:
        """Before a coroutine exists: one that nothing awaits would do nothing."""
        durable = durable_run(self._run, f"ctx.{verb}()")
        if not durable.is_on_loop():
            source = self._run.record.source
            raise TypeError(f'ctx.{verb}() is for async tasks and "{source}" is sync: write ctx.sync.{verb}(…)')
        return durable


class SyncDurableContext:
    """The durable verbs of `SyncTaskContext`."""

    _run: RunState

    def step(self, name: str, function: Callable[Q, S], /, *args: Q.args, **kwargs: Q.kwargs) -> S:
        """Calls a function and saves its result under a name: later runs of this task return the saved result.

        Args:
            name: Name of the step; the second use of a name is another step.
            function: A sync function. Its result is stored by its annotation.
            args: Positional arguments of the function.
            kwargs: Its keyword arguments.
        """
        _check_sync("step", name, function)
        result: S = self._sync_form("step").step_sync(name, function, args, kwargs)
        return result

    def step_in(
        self, connection: object, name: str, function: Callable[Q, S], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> S:
        """Like `step`, saved in your own transaction: the effect of the step and its result both remain, or neither.

        Args:
            connection: Your sync connection to the database of the store, in a transaction.
            name: Name of the step.
            function: A sync function that works on the same connection.
            args: Positional arguments of the function.
            kwargs: Its keyword arguments.
        """
        _check_sync("step_in", name, function)
        durable = self._sync_form("step_in")
        result: S = durable.step_sync(name, function, args, kwargs, _given(connection))
        return result

    def sleep(self, duration: Duration) -> None:
        """Ends this run; the task runs again from the top after the time and passes this line. Steps stay saved.

        Args:
            duration: Seconds or a timedelta.
        """
        durable = self._sync_form("sleep")
        durable.call(durable.sleep(duration))

    @overload
    def wait_for(self, name: str, *, timeout: Duration | None = None) -> Any: ...
    @overload
    def wait_for(self, name: str, *, timeout: Duration | None = None, type: type[T]) -> T: ...
    def wait_for(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        type: Any = Any,  # noqa: A002 - what it is
    ) -> Any:
        """Returns the payload of the first signal under a name that this task has not taken yet.

        Args:
            name: Name of the signal.
            timeout: Seconds or a timedelta, then TimeoutError; None: without a limit.
            type: What the payload is read as, such as a dataclass; by default plain values.
        """
        durable = self._sync_form("wait_for")
        return durable.call(_payload(durable.wait_any((name,), timeout, type)))

    def wait_any(self, *names: str, timeout: Duration | None = None) -> Signal:
        """Returns the first signal under any of these names.

        Args:
            names: One to four names.
            timeout: Seconds or a timedelta, then TimeoutError; None: without a limit.
        """
        durable = self._sync_form("wait_any")
        return durable.call(durable.wait_any(names, timeout, Any))

    def run(self, call: Call[R]) -> R:
        """Runs a task or a flow as a child of this task, and returns its result.

        Args:
            call: A call of the same app, or a flow of up to 1,000 tasks.
        """
        durable = self._sync_form("run")
        return durable.call(durable.run(call))

    def _sync_form(self, verb: str) -> DurableRunProtocol:
        durable = durable_run(self._run, f"ctx.sync.{verb}()")
        if durable.is_on_loop():
            source = self._run.record.source
            raise TypeError(f'ctx.sync.{verb}() is for sync tasks and "{source}" is async: write await ctx.{verb}(…)')
        return durable


def _check_sync(verb: str, name: str, function: object) -> None:
    if inspect.iscoroutinefunction(function):
        raise TypeError(
            f"ctx.sync.{verb}({name!r}): its function is async; in an async task write await ctx.{verb}(…), else "
            "pass a sync function"
        )


def _given(connection: object) -> object:
    if connection is None:
        raise TypeError("ctx.step_in() takes your connection first; without one write ctx.step(…)")
    return connection


def durable_run(run: RunState, verb: str) -> DurableRunProtocol:
    """The durable part of a run; TypeError where there is none."""
    if run.durable is None:
        run.durable = run.reports.durable_run(run, verb)
    return run.durable


async def _payload(signal: Coroutine[Any, Any, Signal]) -> Any:
    return (await signal).payload
