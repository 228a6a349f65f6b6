"""Durable runs: steps whose results are saved, and the order of steps, sleeps and waits in one run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any, TypeVar

from onthedot.clock.durations import Duration
from onthedot.codec.body import Caps, ResultNotEncodable, Undecodable
from onthedot.codec.result_codec import ResultCodec, result_codec
from onthedot.engine.note_batcher import NoteBatcher
from onthedot.engine.repeated_calls import RepeatedCalls
from onthedot.engine.suspension import Suspension
from onthedot.errors import Reject, StepChanged, TaskCancelled
from onthedot.flows.calls import Call
from onthedot.flows.children import Children
from onthedot.flows.journal import StepJournal, StepRequest, check_step_name
from onthedot.flows.waits import Waits
from onthedot.model.context import RunState
from onthedot.model.event_origin import inside_step
from onthedot.model.saved_steps import SavedStep, from_raw, step_name, to_raw
from onthedot.model.signals import Signal
from onthedot.observability.events import Observer
from onthedot.stores.contract import Store

T = TypeVar("T")

_CAPS = Caps(result=1 << 20)
_POLL = 0.1  # seconds between two looks at the cancel of a thread that waits for the store


class DurableRuns:
    """Makes the durable part of a run when its function first uses it. Belongs to the event loop of a worker."""

    def __init__(self, store: Store, observer: Observer) -> None:
        self._store = store
        self._calls = RepeatedCalls(observer, "saving and reading steps")
        self._notes = NoteBatcher(store, self._calls)
        self._loop = asyncio.get_running_loop()

    def __call__(self, run: RunState) -> DurableRun:
        journal = StepJournal(run, self._store, self._notes, self._calls)
        waits = Waits(run, journal, self._store, self._calls)
        return DurableRun(run, journal, waits, Children(run, journal, self._store, self._calls), self._loop)


class DurableRun:
    """The steps, sleeps, waits and children of one run. Implements the protocol of `model.durable_context`."""

    def __init__(
        self,
        run: RunState,
        journal: StepJournal,
        waits: Waits,
        children: Children,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._run = run
        self._journal = journal
        self._waits = waits
        self._children = children
        self._loop = loop
        self._running: dict[StepRequest, None] = {}  # steps whose function runs, or whose result is being saved
        self._wait = ""  # the sleep or wait that is in progress
        self._suspension: Suspension | None = None

    # -- forms

    def is_on_loop(self) -> bool:
        """Whether the caller runs on the event loop of the worker, as async tasks do."""
        return asyncio._get_running_loop() is self._loop

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the worker's event loop and waits for it, in a thread of a sync task."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        while not wait((future,), _POLL).done:
            if self._run.cancel_reason:
                future.cancel()
                raise TaskCancelled(self._run.cancel_reason, self._run.record.uuid)
        return future.result()

    # -- steps

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        connection: object = None,
    ) -> Any:
        request = self._begin(name, connection)
        if not self._journal.is_loaded:
            await self._journal.load()
        codec = result_codec(function)
        saved = self._journal.find(request)
        if saved is not None:
            return self._decode(request, codec, saved)
        with self._progress(request):
            with self._calling(request):
                value = function(*args, **kwargs)
                if inspect.isawaitable(value):
                    value = await value
            step = self._encode(request, codec, value)
            if connection is None:
                await self._journal.save(request.key, step)
            else:
                await self._journal.save_awaited(connection, request.key, step)
        return value

    def step_sync(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        connection: object = None,
    ) -> Any:
        request = self._begin(name, connection)
        if not self._journal.is_loaded:
            self.call(self._journal.load())
        codec = result_codec(function)
        saved = self._journal.find(request)
        if saved is not None:
            return self._decode(request, codec, saved)
        with self._progress(request):
            with self._calling(request):
                value = function(*args, **kwargs)
            if inspect.iscoroutine(value):
                value.close()
                raise TypeError(f"ctx.sync.step({name!r}): its function returns a coroutine; pass a sync function")
            step = self._encode(request, codec, value)
            if connection is None:
                self.call(self._journal.save(request.key, step))
            else:
                self._journal.save_in(connection, request.key, step)
        return value

    def _begin(self, name: str, connection: object) -> StepRequest:
        check_step_name(name)
        if connection is not None:
            self._journal.joins()  # refuses it before the step has run
        self._check_not_inside(f"step {name!r}")
        if self._suspension is not None:
            raise self._suspension  # in a `finally` block, or beside it in gather(): it runs after the wait
        if self._wait:
            raise RuntimeError(f"step {name!r} during {self._wait} of the same run: await that first")
        return self._journal.request(name)

    def _check_not_inside(self, what: str) -> None:
        outer = inside_step.get()
        if outer:
            raise RuntimeError(
                f"{what} inside of step {step_name(outer)!r}: its result is one value; call the function directly"
            )

    @contextmanager
    def _progress(self, request: StepRequest) -> Generator[None, None, None]:
        self._running[request] = None
        try:
            yield
        finally:
            del self._running[request]

    @contextmanager
    def _calling(self, request: StepRequest) -> Generator[None, None, None]:
        token = inside_step.set(request.key)
        try:
            yield
        except Exception as error:
            self._journal.add_error(request, error)
            raise
        finally:
            inside_step.reset(token)

    def _encode(self, request: StepRequest, codec: ResultCodec, value: object) -> SavedStep:
        """A result that cannot be saved ends the task: its effect has happened, and a retry would repeat it."""
        try:
            data = codec.encode(value, _CAPS, f"step {request.key!r}")
        except ResultNotEncodable as error:
            raise Reject(f"{error}. The step has run and is not saved, so the task is not retried") from error
        return SavedStep(request.position, to_raw(data), codec.text, request.after_errors)

    def _decode(self, request: StepRequest, codec: ResultCodec, saved: SavedStep) -> Any:
        try:
            return codec.decode(from_raw(saved.value), saved.type)
        except Undecodable as error:
            before = saved.type or "a value without a declared type"
            now = codec.text or "a value without a declared type"
            raise StepChanged(
                self._run.record.uuid,
                f"the result of step {request.key!r} was saved as {before} and cannot be read as {now}: {error}. "
                "Declare a type that reads it, then retry the task",
            ) from error

    # -- sleeps and waits

    async def sleep(self, duration: Duration) -> None:
        with self._waiting("ctx.sleep()"):
            await self._waits.sleep(duration)

    async def wait_any(self, names: tuple[str, ...], timeout: Duration | None, kind: Any) -> Signal:
        with self._waiting(f"the wait for {' or '.join(map(repr, names))}"):
            return await self._waits.wait_any(names, timeout, kind)

    async def run(self, call: Call[Any]) -> Any:
        with self._waiting("ctx.run()"):
            return await self._children.run(call)

    @contextmanager
    def _waiting(self, what: str) -> Generator[None, None, None]:
        self._check_not_inside(what)
        if self._suspension is not None:
            raise self._suspension
        if self._running or self._wait:
            busy = self._wait or f"step {next(iter(self._running)).key!r}"
            raise RuntimeError(f"{what} while {busy} of the same run is in progress: await the steps first")
        self._wait = what
        try:
            yield
        except Suspension as suspension:
            self._suspension = suspension
            raise
        finally:
            self._wait = ""

    # -- changed code, and the end

    def changed(self, renamed: Mapping[str, str], added: Collection[str], removed: Collection[str]) -> None:
        self._journal.declare_changes(renamed, added, removed)

    def finish(self) -> None:
        """The function has returned."""
        if self._suspension is not None:
            raise RuntimeError(
                "the task has swallowed its suspension by a sleep, a wait or a child: let BaseException pass "
                "(catch Exception instead, or raise it again)"
            )
        left = self._journal.never_requested()
        if left:
            self._run.context.logger.warning(
                "task %s from %s has saved steps that its last run did not use: %s",
                self._run.record.uuid, self._run.record.source, ", ".join(left),
            )  # fmt: skip
