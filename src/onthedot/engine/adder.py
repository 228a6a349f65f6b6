"""Adding tasks: what gathers while one write is under way goes with the next. No timer, no wait when idle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from onthedot.errors import StoreError, StoreUnavailable
from onthedot.stores.contract import BATCH, Added, NewTask, Store


class Adder:
    def __init__(self, store: Store, timeout: float = 5.0) -> None:
        self._store = store
        self._timeout = timeout
        self._waiting: list[tuple[NewTask, asyncio.Future[Added]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def add(self, task: NewTask) -> Added:
        """Stored when this returns."""
        if self._store.immediate:
            return (await self._store.add((task,)))[0]
        return (await self._gathered([task]))[0]

    async def add_many(self, tasks: Sequence[NewTask]) -> list[Added]:
        if not self._store.immediate:
            return await self._gathered(tasks)
        added: list[Added] = []
        for start in range(0, len(tasks), BATCH):
            added += await self._store.add(tasks[start : start + BATCH])
        return added

    async def _gathered(self, tasks: Sequence[NewTask]) -> list[Added]:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Added]] = [loop.create_future() for _ in tasks]
        self._waiting += zip(tasks, futures, strict=True)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        # The write belongs to all who wait: one who gives up does not take the others' tasks with it.
        await asyncio.shield(asyncio.gather(*futures))
        return [future.result() for future in futures]

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                await self._write_batch(batch)
        finally:
            self._writer = None

    async def _write_batch(self, batch: list[tuple[NewTask, asyncio.Future[Added]]]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                answers = await self._store.add([task for task, _ in batch])
        except TimeoutError:
            self._fail(batch, StoreUnavailable(f"the store did not answer within {self._timeout:g} s"))
        except StoreError as error:
            self._fail(batch, error)
        except BaseException:
            self._fail(batch, StoreUnavailable("the write was interrupted"))
            raise
        else:
            for (_, future), added in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(added)

    def _fail(self, batch: list[tuple[NewTask, asyncio.Future[Added]]], error: StoreError) -> None:
        for _, future in batch:
            if not future.done():
                future.set_exception(type(error)(*error.args))
