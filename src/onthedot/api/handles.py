"""Handles: what an add returns, to read a task and to wait for its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onthedot.api.stream_entries import AsyncEntries, StreamSource, SyncEntries, whole
from onthedot.client.client import StoreClient
from onthedot.client.portal import Portal
from onthedot.clock.durations import Duration
from onthedot.errors import SchedulerStateError, TaskError
from onthedot.flows.signals import KEEP, new_signal
from onthedot.model.failures import error_from_record, read_result
from onthedot.model.familiar_names import HANDLE, missing_attribute
from onthedot.model.streams import StreamEntry, streamed_items
from onthedot.model.task import TaskInfo, TaskState
from onthedot.stores.contract import Record

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class _Handle:
    """The part that sync and async handles share.

    uuid: the id of the task
    added: False: the add found a task of the same uuid or unique key, or the handle was not made by an add
    """

    __slots__ = ("_decode", "_portal", "added", "uuid")

    def __init__(self, portal: Portal, uuid: str, decode: Callable[[bytes], Any], added: bool = True) -> None:
        self._portal = portal
        self._decode = decode
        self.uuid: str = uuid
        self.added: bool = added

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uuid!r})"

    def _stream_source(self) -> StreamSource:
        return StreamSource(self._portal, self.uuid, self._decode)

    if not TYPE_CHECKING:  # type checkers refuse the name themselves

        def __getattr__(self, name: str) -> object:
            raise missing_attribute(self, name, HANDLE)


class AsyncTaskHandle(_Handle, Generic[R_co]):
    """A task, for async code: ``value = await handle``. Its methods are those of `TaskHandle`, awaited."""

    __slots__ = ()

    async def state(self) -> TaskState:
        """Returns the state of the task now."""
        return (await self.info()).state

    async def info(self) -> TaskInfo:
        """Returns the task with arguments, times, progress and errors."""
        return await self._portal.run(lambda client: client.operations.get(self.uuid))

    async def done(self) -> bool:
        """Returns whether the task has ended."""
        return (await self.state()).ended

    async def result(self, timeout: float | None = None) -> R_co:
        """Waits until the task has ended and returns its result. Raises TaskFailed or TaskCancelled.

        Args:
            timeout: Seconds to wait, then TimeoutError; None: without a limit.
        """
        record = await self._end(timeout)
        if streamed_items(record) is not None:
            record = await self._portal.run(lambda client: client.with_items(record))
        return read_result(record, self._decode)  # type: ignore[no-any-return]

    async def exception(self, timeout: float | None = None) -> TaskError | None:
        """Waits until the task has ended and returns its error; None if it succeeded.

        Args:
            timeout: Seconds to wait, then TimeoutError; None: without a limit.
        """
        record = await self._end(timeout)
        return None if record.state == "succeeded" else error_from_record(record)

    async def cancel(self) -> bool:
        """Cancels the task: a pending one ends at once, a running one is asked to. Returns whether it was alive."""
        return await self._portal.run(lambda client: client.operations.cancel(self.uuid)) > 0

    async def retry(self) -> bool:
        """Runs a failed or cancelled task again. Returns whether it is alive now."""
        return bool(await self._portal.run(lambda client: client.operations.retry(self.uuid)))

    async def signal(
        self,
        name: str,
        payload: object = None,
        *,
        id: str | None = None,  # noqa: A002 - as senders know it
        keep: Duration = KEEP,
    ) -> bool:
        """Sends a signal to this task alone: ``ctx.wait_for(name)`` in it returns the payload.

        Args:
            name: Name of the signal.
            payload: A value that the waiting task gets.
            id: Makes a repeat harmless: the first payload per name and id is kept, and the repeat returns False.
            keep: How long it is kept, if the task waits later; at least 24 hours.
        """
        signal = new_signal(name, payload, id, keep, to=self.uuid)
        return await self._portal.run(lambda client: client.operations.signals.send(signal))

    def stream(self, after: str = "") -> AsyncIterator[StreamEntry]:
        """Yields the items of a stream as they come, then an entry ``end``; of any other task only the end.

        `StreamRestarted`: a new run of the task has begun again; what was read so far does not belong to it.

        Args:
            after: The cursor of the last entry that was read; by default it begins with the first one.
        """
        return AsyncEntries(self._stream_source(), after, whole, has_end=True)

    async def _end(self, timeout: float | None) -> Record:
        return await self._portal.run(lambda client: client.wait_for_end(self.uuid, timeout), waits=True)

    def __await__(self) -> Generator[Any, None, R_co]:
        return self.result().__await__()


class TaskHandle(_Handle, Generic[R_co]):
    """A task, for sync code: ``value = handle.result(timeout=5)``."""

    __slots__ = ()

    def state(self) -> TaskState:
        """Returns the state of the task now."""
        return self.info().state

    def info(self) -> TaskInfo:
        """Returns the task with arguments, times, progress and errors."""
        return self._portal.run_sync(lambda client: client.operations.get(self.uuid))

    def done(self) -> bool:
        """Returns whether the task has ended."""
        return self.state().ended

    def result(self, timeout: float | None = None) -> R_co:
        """Waits until the task has ended and returns its result. Raises TaskFailed or TaskCancelled.

        Args:
            timeout: Seconds to wait, then TimeoutError; None: without a limit.
        """
        record = self._end(timeout)
        if streamed_items(record) is not None:
            record = self._portal.run_sync(lambda client: client.with_items(record))
        return read_result(record, self._decode)  # type: ignore[no-any-return]

    def exception(self, timeout: float | None = None) -> TaskError | None:
        """Waits until the task has ended and returns its error; None if it succeeded.

        Args:
            timeout: Seconds to wait, then TimeoutError; None: without a limit.
        """
        record = self._end(timeout)
        return None if record.state == "succeeded" else error_from_record(record)

    def cancel(self) -> bool:
        """Cancels the task: a pending one ends at once, a running one is asked to. Returns whether it was alive."""
        return self._portal.run_sync(lambda client: client.operations.cancel(self.uuid)) > 0

    def retry(self) -> bool:
        """Runs a failed or cancelled task again. Returns whether it is alive now."""
        return bool(self._portal.run_sync(lambda client: client.operations.retry(self.uuid)))

    def signal(
        self,
        name: str,
        payload: object = None,
        *,
        id: str | None = None,  # noqa: A002 - as senders know it
        keep: Duration = KEEP,
    ) -> bool:
        """Sends a signal to this task alone: ``ctx.wait_for(name)`` in it returns the payload.

        Args:
            name: Name of the signal.
            payload: A value that the waiting task gets.
            id: Makes a repeat harmless: the first payload per name and id is kept, and the repeat returns False.
            keep: How long it is kept, if the task waits later; at least 24 hours.
        """
        signal = new_signal(name, payload, id, keep, to=self.uuid)
        return self._portal.run_sync(lambda client: client.operations.signals.send(signal))

    def stream(self, after: str = "") -> Iterator[StreamEntry]:
        """Yields the items of a stream as they come, then an entry ``end``; of any other task only the end.

        `StreamRestarted`: a new run of the task has begun again; what was read so far does not belong to it.

        Args:
            after: The cursor of the last entry that was read; by default it begins with the first one.
        """
        self._check_may_wait()
        return SyncEntries(self._stream_source(), after, whole, has_end=True)

    def _check_may_wait(self) -> None:
        if self._portal.on_worker_loop():
            raise SchedulerStateError(
                f"reading task {self.uuid} would block the very event loop that runs it: "
                "write `h = await f.enqueue(…)` and `async for … in h` here"
            )

    def _end(self, timeout: float | None) -> Record:
        if self._portal.on_worker_loop():
            raise SchedulerStateError(
                f"result() of task {self.uuid} would block the very event loop that runs it: "
                "write `h = await f.enqueue(…)` and `await h` here"
            )
        blocks = self._portal.on_event_loop()

        async def wait(client: StoreClient) -> Record:
            if blocks:
                client.report_blocked_loop(self.uuid)
            return await self._wait(client, timeout)

        return self._portal.run_sync(wait, waits=True)

    async def _wait(self, client: StoreClient, timeout: float | None) -> Record:
        return await client.wait_for_end(self.uuid, timeout)


async def as_completed(
    handles: Iterable[AsyncTaskHandle[R]], timeout: float | None = None
) -> AsyncIterator[AsyncTaskHandle[R]]:
    """Yields handles in the order in which their tasks end, whether they succeed or fail.

    Args:
        handles: Handles for async code.
        timeout: Seconds for all of them together, then TimeoutError.

    ::

        async for handle in as_completed(handles):
            print(await handle)
    """
    ended: asyncio.Queue[AsyncTaskHandle[R]] = asyncio.Queue()

    async def follow(handle: AsyncTaskHandle[R]) -> None:
        with suppress(TaskError):  # such as TaskNotFound, which the handle raises again
            await handle.exception()
        ended.put_nowait(handle)

    now = asyncio.get_running_loop().time
    deadline = None if timeout is None else now() + timeout
    following = [asyncio.ensure_future(follow(handle)) for handle in handles]
    try:
        for _ in following:
            async with asyncio.timeout(None if deadline is None else deadline - now()):
                handle = await ended.get()
            yield handle
    finally:
        for each in following:
            each.cancel()
