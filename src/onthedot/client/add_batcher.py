"""Adding tasks: what gathers while one write is under way goes with the next. No timer, no wait when idle."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from onthedot.errors import ArgumentError, OnTheDotError, StoreError, StoreUnavailable
from onthedot.stores.contract import BATCH, Added, NewTask, Store

_Asked: TypeAlias = "tuple[Sequence[NewTask], asyncio.Future[Sequence[Added]]]"


class AddBatcher:
    def __init__(self, store: Store, timeout: float = 5.0) -> None:
        self._store = store
        self._timeout = timeout
        self._waiting: deque[_Asked] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._solo_write = False  # somebody writes its own task, and nobody else's
        self._batching = False  # the last write was of several: they come again, and together

    async def add(self, task: NewTask) -> Added:
        """Stored when this returns."""
        if self._store.traits.synchronous:
            return (await self._store.add((task,)))[0]
        if self._store.traits.cancel_safe and self._writer is None and not self._solo_write and not self._batching:
            return (await self._write_alone(task))[0]
        return (await self._ask((task,)))[0]

    async def add_many(self, tasks: Sequence[NewTask]) -> list[Added]:
        parts = [tasks[start : start + BATCH] for start in range(0, len(tasks), BATCH)]
        added: list[Added] = []
        if self._store.traits.synchronous:
            for part in parts:
                added += await self._store.add(part)
            return added
        for answers in await asyncio.gather(*map(self._ask, parts)):
            added += answers
        return added

    def _ask(self, tasks: Sequence[NewTask]) -> asyncio.Future[Sequence[Added]]:
        """≤ BATCH. Who gives up waiting does not take the write, and the others' tasks in it, with it."""
        future: asyncio.Future[Sequence[Added]] = asyncio.get_running_loop().create_future()
        self._waiting.append((tasks, future))
        self._begin()
        return future

    def _begin(self) -> None:
        if self._writer is not None or self._solo_write:
            return
        if any(not future.done() for _, future in self._waiting):
            self._writer = asyncio.create_task(self._write())
        else:
            self._waiting.clear()  # all have given up before it began, as they do when a loop ends

    async def _write_alone(self, task: NewTask) -> Sequence[Added]:
        """Without a task for it, half of the turns of the loop: nothing in it is of others, who gather meanwhile."""
        self._solo_write = True
        try:
            return await self._store.add((task,))
        except StoreError:
            raise
        except Exception as error:
            raise _not_taken(error) from error
        finally:
            self._solo_write = False
            self._begin()

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._write_batch(self._next_batch())
        finally:
            self._writer = None

    def _next_batch(self) -> list[_Asked]:
        batch, room = [self._waiting.popleft()], BATCH
        room -= len(batch[0][0])
        while self._waiting and len(self._waiting[0][0]) <= room:
            batch.append(self._waiting.popleft())
            room -= len(batch[-1][0])
        self._batching = len(batch) > 1
        return batch

    async def _write_batch(self, batch: list[_Asked]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                answers = await self._store.add([task for tasks, _ in batch for task in tasks])
        except TimeoutError:
            self._fail(batch, StoreUnavailable(f"the store did not answer within {self._timeout:g} s"))
        except StoreError as error:
            self._fail(batch, error)
        except Exception as error:  # noqa: BLE001 - something in one of them: told to whoever added that, and to nobody else
            if len(batch) == 1:
                self._fail(batch, _not_taken(error))
            for alone in batch if len(batch) > 1 else ():
                await self._write_batch([alone])
        except BaseException:
            self._fail(batch, StoreUnavailable("the write was interrupted"))
            raise
        else:
            start = 0
            for tasks, future in batch:
                if not future.done():
                    future.set_result(answers[start : start + len(tasks)])
                start += len(tasks)

    def _fail(self, batch: list[_Asked], error: OnTheDotError) -> None:
        for _, future in batch:
            if not future.done():
                future.set_exception(type(error)(*error.args))


def _not_taken(error: Exception) -> ArgumentError:
    return ArgumentError(f"the store cannot take it: {type(error).__name__}: {error}")
