"""Batches, as users hold them: ``app.batch`` and what it returns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from typing import Any, Generic, TypeVar, Unpack, cast

from onthedot.api.batch_modes import Batches
from onthedot.api.batch_reader import AsyncPartEntries, BatchReader, SyncPartEntries
from onthedot.api.functions import Enqueuer
from onthedot.batches.coordinator import BatchWorker
from onthedot.batches.coordinator_source import CoordinatorSource
from onthedot.batches.parts import BatchResult, Part
from onthedot.batches.policy import BatchPolicy
from onthedot.batches.requests import BatchArguments, PreparedBatch, add_batch, check_named_parameters, prepare_batch
from onthedot.client.portal import Portal
from onthedot.definitions.functions import FunctionDefinition
from onthedot.errors import ArgumentError, DeclarationError, SchedulerStateError
from onthedot.model.batch_names import coordinator_source
from onthedot.model.streams import StreamEntry
from onthedot.operations.batches import BatchProgress
from onthedot.runtime.runtime import Runtime

__all__ = ["AppBatches", "Batch", "BatchSetup", "SyncBatch"]

T = TypeVar("T")

_COORDINATORS = 10  # of one task that run at once in a process; each runs for a moment whenever a part has ended


class Batch(Generic[T]):
    """A batch, for async code: ``await app.batch(…)``, or ``app.batch_handle(id)`` for one that was added elsewhere.

    >>> import asyncio
    >>> from onthedot import App, BatchPolicy, SizeTable
    >>> app = App("shop", store="memory://")
    >>> @app.task(batch=BatchPolicy(split=SizeTable({}, other=2)))
    ... async def numbers(count: int) -> list[int]:
    ...     return list(range(count))
    >>> async def main() -> None:
    ...     async with app.running():
    ...         batch = await app.batch(numbers, count=3)
    ...         async for part in batch.parts():
    ...             print(part.number, len(part.items))
    ...         print(sorted((await batch.all()).items))
    >>> asyncio.run(main())
    1 2
    2 1
    [0, 0, 1]
    """

    def __init__(self, reader: BatchReader[T], added: bool = False) -> None:
        self._reader = reader
        self._portal = reader.portal
        self.id: str = reader.batch
        self.added: bool = added
        """False: the key was that of an existing batch, or the handle was not made by ``app.batch``."""

    async def first(self, timeout: float | None = None) -> Part[T]:
        """Waits for the first part that has an item. Raises the error of a batch that ends without one.

        Args:
            timeout: Seconds to wait, then TimeoutError; None: without a limit.
        """
        return await self._portal.run(lambda client: _timed(self._reader.first(client), timeout, self.id), waits=True)

    def parts(self, after: int = 0) -> AsyncIterator[Part[T]]:
        """Yields parts in the order in which they end; then raises TaskFailed or TaskCancelled, as `all` does.

        Args:
            after: The number of the last part that was read; 0: from the first one on.
        """
        return self._parts(_check_number(after))

    async def _parts(self, after: int) -> AsyncIterator[Part[T]]:
        async for entry in AsyncPartEntries(self._reader, has_end=False):
            if entry.number > after:
                yield entry.data

    def stream(self, after: str = "") -> AsyncIterator[StreamEntry]:
        """Yields one entry of kind ``part`` per part, whose data is a `Part`, and then one of kind ``end``.

        Args:
            after: The cursor of the last entry that was read, such as the ``Last-Event-ID`` of a browser.
        """
        return AsyncPartEntries(self._reader, after, has_end=True)

    async def all(self, timeout: float | None = None) -> BatchResult[T]:
        """Waits for the end of the batch and returns all its items. Raises TaskFailed or TaskCancelled.

        Args:
            timeout: Seconds to wait, then TimeoutError; None: without a limit.
        """
        return await self._portal.run(lambda client: _timed(self._reader.all(client), timeout, self.id), waits=True)

    async def progress(self) -> BatchProgress:
        """Returns how many parts have ended, and how many items there are."""
        return await self._portal.run(lambda client: client.operations.batches.progress(self.id))

    async def cancel(self, reason: str = "cancelled") -> int:
        """Cancels the batch and its parts, and waits up to 5 s for their ends. Returns how many tasks lived.

        Args:
            reason: Kept with the tasks.
        """
        return await self._portal.run(lambda client: client.operations.batches.cancel(self.id, reason), waits=True)

    def __repr__(self) -> str:
        return f"Batch({self.id!r})"


class SyncBatch(Generic[T]):
    """A batch, for sync code: ``app.sync.batch(…)``. Its methods are those of `Batch`."""

    def __init__(self, reader: BatchReader[T], added: bool = False) -> None:
        self._reader = reader
        self._portal = reader.portal
        self.id: str = reader.batch
        self.added: bool = added

    def first(self, timeout: float | None = None) -> Part[T]:
        """Waits for the first part that has an item. timeout: as in `Batch.first`."""
        self._check_may_wait()
        return self._portal.run_sync(lambda client: _timed(self._reader.first(client), timeout, self.id), waits=True)

    def parts(self, after: int = 0) -> Iterator[Part[T]]:
        """Yields parts in the order in which they end. after: as in `Batch.parts`."""
        self._check_may_wait()
        number = _check_number(after)
        return (entry.data for entry in SyncPartEntries(self._reader, has_end=False) if entry.number > number)

    def stream(self, after: str = "") -> Iterator[StreamEntry]:
        """Yields one entry per part, and then the end. after: as in `Batch.stream`."""
        self._check_may_wait()
        return SyncPartEntries(self._reader, after, has_end=True)

    def all(self, timeout: float | None = None) -> BatchResult[T]:
        """Waits for the end of the batch and returns all its items. timeout: as in `Batch.all`."""
        self._check_may_wait()
        return self._portal.run_sync(lambda client: _timed(self._reader.all(client), timeout, self.id), waits=True)

    def progress(self) -> BatchProgress:
        """Returns how many parts have ended, and how many items there are."""
        return self._portal.run_sync(lambda client: client.operations.batches.progress(self.id))

    def cancel(self, reason: str = "cancelled") -> int:
        """Cancels the batch and its parts. Returns how many tasks lived. reason: kept with the tasks."""
        return self._portal.run_sync(lambda client: client.operations.batches.cancel(self.id, reason), waits=True)

    def _check_may_wait(self) -> None:
        if self._portal.on_worker_loop():
            raise SchedulerStateError(
                f"waiting for batch {self.id} would block the very event loop that runs it: write `await app.batch(…)`"
            )

    def __repr__(self) -> str:
        return f"SyncBatch({self.id!r})"


class BatchSetup:
    """Makes the batches of one app."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.portal: Portal = runtime.portal

    def declare(self, definition: FunctionDefinition, policy: BatchPolicy, aliases: Iterable[str]) -> None:
        """Adds the source that coordinates batches of a task. aliases: former names of the task."""
        if not isinstance(policy, BatchPolicy):
            raise DeclarationError(f"task {definition.name!r}: batch must be a BatchPolicy(…), not {policy!r}")
        if definition.is_stream:
            raise DeclarationError(f"task {definition.name!r}: a part of a batch returns a list, and this is a stream")
        if definition.options.unique:
            raise DeclarationError(
                f"task {definition.name!r}: unique= with batch=: two parts of a batch may have equal arguments; give "
                "the batch a key: app.batch(…, key=…)"
            )
        check_named_parameters(definition)
        source = CoordinatorSource(definition, policy, self._find, self._worker)
        names = [coordinator_source(name) for name in (definition.name, *aliases)]
        self._runtime.registry.companion(source, names, definition, _COORDINATORS)

    def _find(self, name: str) -> FunctionDefinition | None:
        source = self._runtime.sources.get(name)
        return source if isinstance(source, FunctionDefinition) else None

    def _worker(self) -> BatchWorker:
        assert self._runtime.batch_worker is not None
        return self._runtime.batch_worker

    def prepare(self, task: Enqueuer[..., Any], arguments: BatchArguments) -> PreparedBatch:
        """Checks a call of ``app.batch``."""
        if not isinstance(task, Enqueuer) or task.portal is not self.portal:
            raise ArgumentError(f"app.batch({task!r}): it takes a task of this app, declared with @app.task(batch=…)")
        name = task.definition.name
        source = self._runtime.sources.get(coordinator_source(name))
        if not isinstance(source, CoordinatorSource):
            raise ArgumentError(f"app.batch({name}): declare it with @app.task(batch=BatchPolicy(…))")
        fallback = arguments.get("fallback", source.policy.fallback)
        definition = None if fallback is None else self._fallback(name, fallback)
        return prepare_batch(source, arguments, definition)

    def _fallback(self, name: str, fallback: object) -> FunctionDefinition:
        if not isinstance(fallback, Enqueuer) or fallback.portal is not self.portal:
            raise ArgumentError(f"app.batch({name}): fallback must be a task of this app, not {fallback!r}")
        definition = cast("Enqueuer[..., Any]", fallback).definition
        if not isinstance(definition, FunctionDefinition):
            raise ArgumentError(f"app.batch({name}): the code of its fallback {definition.name} is not known here")
        return definition

    def reader(self, batch: str) -> BatchReader[Any]:
        return BatchReader(self.portal, batch, self._runtime.result_decoder)


class AppBatches:
    """The batches of an app."""

    _batch_setup: BatchSetup
    batches: Batches

    async def batch(self, task: Enqueuer[..., list[T]], **arguments: Unpack[BatchArguments]) -> Batch[T]:
        """Makes a number of items in parts: ``await app.batch(names, count=50, type="character_name")``.

        It is stored when this returns. Raises `SourceFrozen` while an operator has frozen the task.

        Args:
            task: A task with ``@app.task(batch=…)`` that returns a list.
            arguments: See `BatchArguments`.
        """
        setup = self._batch_setup
        prepared = setup.prepare(task, arguments)
        added = await setup.portal.run(lambda client: add_batch(client, prepared))
        return Batch(setup.reader(added.uuid), added.fresh)

    def batch_handle(self, id: str) -> Batch[Any]:  # noqa: A002 - as `Batch.id`
        """Returns a batch that was added elsewhere.

        Args:
            id: The id of the batch.
        """
        return Batch(self._batch_setup.reader(id))


async def _timed(work: Coroutine[Any, Any, T], timeout: float | None, batch: str) -> T:
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if timeout is None or not limit.expired():
            raise
        raise TimeoutError(
            f"batch {batch} has not answered within {timeout:g} s; it continues: wait for it again"
        ) from None


def _check_number(after: int) -> int:
    if not isinstance(after, int) or isinstance(after, bool) or after < 0:
        raise ArgumentError(f"parts(after={after!r}): give the number of a part, or 0; cursors are for stream()")
    return after
