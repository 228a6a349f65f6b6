"""Batches adds: tasks that arrive during a write go with the next one. No timer, and no wait when idle."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from copy import copy

from msgspec import Struct

from onthedot.errors import ArgumentError, StoreError, StoreUnavailable
from onthedot.stores.contract import BATCH, Added, DeadlinePassed, NewTask, Store


class _PendingAdd(Struct, frozen=True, gc=False):
    """gc=False: a tracked object more per pending add makes the collector run in every burst of a hundred adds."""

    tasks: Sequence[NewTask]
    answer: asyncio.Future[Sequence[Added]]


_STORE_TIMEOUT = 4.0  # seconds; no store gives up on a request of its own earlier
_RETRY = 1.0  # seconds for a request that was late because other code blocked the loop
_GRACE = 0.05  # seconds after the timeout for a reply that arrived while other code blocked the loop


class AddBatcher:
    def __init__(self, store: Store, timeout: float = 5.0) -> None:
        self._store = store
        self._timeout = timeout
        self._pending: deque[_PendingAdd] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._solo_write = False  # a caller is writing its own task
        self._batching = False  # the last write had several adds, so more of them are likely to come together

    async def add(self, tasks: Sequence[NewTask], most: int = BATCH) -> Sequence[Added]:
        """Tasks are stored when this returns. A cancelled caller does not cancel the write, which has others' tasks.

        most: so many are stored together, all or none; ≤ MAX_ADD
        """
        if len(tasks) > most:
            return await self._add_parts(tasks)
        traits = self._store.traits
        if traits.synchronous:
            return await self._store.add(tasks)  # no request can be late
        is_idle = self._writer is None and not self._solo_write and not self._batching
        if is_idle and traits.cancel_safe and len(tasks) == 1:
            return await self._write_alone(tasks)
        return await self._enqueue(tasks)

    async def _add_parts(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """One part after the other: after an error none of the later parts is sent."""
        answers: list[Added] = []
        for start in range(0, len(tasks), BATCH):
            try:
                answers += await self.add(tasks[start : start + BATCH])
            except StoreError as error:
                error.uuids = tuple(task.uuid for task in tasks[start:])
                raise
        return answers

    def _enqueue(self, tasks: Sequence[NewTask]) -> asyncio.Future[Sequence[Added]]:
        answer: asyncio.Future[Sequence[Added]] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingAdd(tasks, answer))
        if self._writer is None and not self._solo_write:
            self._writer = asyncio.create_task(self._write())
        return answer

    async def _write_alone(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """Writes in the caller's own coroutine: half as many steps of the loop. Adds of others gather meanwhile."""
        self._solo_write = True
        try:
            return await self._send(tasks)
        except StoreError as error:
            raise for_add(error, tasks) from error
        except Exception as error:
            raise _refused(error) from error
        finally:
            self._solo_write = False
            if any(not add.answer.done() for add in self._pending):
                self._writer = asyncio.create_task(self._write())
            else:
                self._pending.clear()  # all callers were cancelled before the write began, as at the end of a loop

    async def _write(self) -> None:
        try:
            while self._pending:
                await self._write_batch(self._next_batch())
        finally:
            self._writer = None

    def _next_batch(self) -> list[_PendingAdd]:
        batch = [self._pending.popleft()]
        capacity = BATCH - len(batch[0].tasks)
        while self._pending and len(self._pending[0].tasks) <= capacity:
            batch.append(self._pending.popleft())
            capacity -= len(batch[-1].tasks)
        self._batching = len(batch) > 1
        return batch

    async def _write_batch(self, batch: list[_PendingAdd]) -> None:
        try:
            async with asyncio.timeout(None) as patience:
                timer = asyncio.get_running_loop().call_later(self._timeout, _grant_grace, patience)
                try:
                    answers = await self._send([task for add in batch for task in add.tasks], patience)
                finally:
                    timer.cancel()
        except TimeoutError:
            self._fail(batch, StoreUnavailable(f"the store did not answer within {self._timeout:g} s"))
        except StoreError as error:
            self._fail(batch, error)
        except Exception as error:  # noqa: BLE001 - one of the tasks is to blame: only its caller gets the error
            if len(batch) == 1:
                self._fail(batch, _refused(error))
                return
            for add in batch:
                await self._write_batch([add])
        except BaseException:
            self._fail(batch, StoreUnavailable("the write was interrupted"))
            raise
        else:
            start = 0
            for add in batch:
                if not add.answer.done():
                    add.answer.set_result(answers[start : start + len(add.tasks)])
                start += len(add.tasks)

    async def _send(self, tasks: Sequence[NewTask], timeout: asyncio.Timeout | None = None) -> Sequence[Added]:
        """The store refuses what it gets after this caller has given up: then "not stored" stays true.

        timeout: of the caller; None: the store's own
        """
        loop = asyncio.get_running_loop()
        sent = loop.time()
        patience = min(self._timeout, _STORE_TIMEOUT)
        try:
            return await self._store.add(tasks, self._store.earliest_now() + patience * 1000)
        except DeadlinePassed as refused:  # nobody has given up yet: the store's clock has jumped ahead,
            left = sent + patience - loop.time()
            if left <= 0:  # or other code has blocked this loop
                left = _RETRY
                if timeout is not None:
                    timeout.reschedule(loop.time() + _RETRY + _GRACE)
            return await self._store.add(tasks, refused.now + left * 1000)

    def _fail(self, batch: list[_PendingAdd], error: StoreError | ArgumentError) -> None:
        for add in batch:
            if not add.answer.done():
                add.answer.set_exception(for_add(error, add.tasks) if isinstance(error, StoreError) else error)


def _grant_grace(patience: asyncio.Timeout) -> None:
    patience.reschedule(max(patience.when() or 0.0, asyncio.get_running_loop().time() + _GRACE))


def for_add(error: StoreError, tasks: Sequence[NewTask], *, sent: bool = True) -> StoreError:
    """The error for the caller that adds these tasks; others may get a copy of the same one.

    sent: False: the store cannot have got the tasks
    """
    if error.uuids:
        return error
    own = copy(error)
    own.uuids = tuple(task.uuid for task in tasks)
    if not sent:
        own.stored = False
    return own


def _refused(error: Exception) -> ArgumentError:
    return ArgumentError(f"the store cannot take it: {type(error).__name__}: {error}")
