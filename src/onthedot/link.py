"""One event loop's way to the store: it adds, and it waits for ends."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime

from onthedot.clock import Clock
from onthedot.codec import decode_open
from onthedot.engine.adder import Adder
from onthedot.errors import StoreError, TaskNotFound
from onthedot.observe.counts import Counts
from onthedot.observe.logs import Logs
from onthedot.operations import Operations
from onthedot.stores.contract import Added, NewTask, Record, Store

_ENDED = ("succeeded", "failed", "cancelled")
_POLL = 1.0  # seconds: a hint may be lost, and other processes' tasks reply to them


class Link:
    def __init__(self, store: Store, client: str, logs: Logs, clock: Clock, counts: Counts) -> None:
        self.store = store
        self.operations: Operations = Operations(store, client, clock)
        self._client = client
        self._logs = logs
        self._counts = counts
        self._adder = Adder(store)
        self._waiters: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)
        self._listener: asyncio.Task[None] | None = None
        self._counter: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.store.open()
        if self._counted:
            try:
                await self.watch()
            except BaseException:
                await self.store.shut()
                raise

    async def watch(self) -> None:
        """Keeps the counts fresh from now on."""
        await self._counts.look_now(self.store)  # first: what is added then is counted on top of it
        if self._counter is None:
            self._counter = asyncio.create_task(self._counts.keep(self.store))

    @property
    def _counted(self) -> bool:
        return self._counts.watched and not self.store.immediate

    async def opened(self) -> None:
        """Done as soon as there is a link at all."""

    async def settled(self, patience: float) -> None:
        """Until nobody waits for an end any more, but not for long."""
        told = [each for waiters in self._waiters.values() for each in waiters]
        if told:
            await asyncio.wait(told, timeout=patience)

    async def close(self) -> None:
        ending = [task for task in (self._listener, self._counter) if task is not None]
        self._listener = self._counter = None
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        await self.store.shut()

    async def add(self, task: NewTask) -> Added:
        added = (await self._add((task,)))[0] if self._counted else await self._adder.add(task)
        if added.fresh:
            self._logs.queued((task,))
        else:
            await self._compare([task], [added])
        return added

    async def add_many(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        many = await (self._add(tasks) if self._counted else self._adder.add_many(tasks))
        await self._compare(tasks, many)
        self._logs.queued([task for task, added in zip(tasks, many, strict=True) if added.fresh])
        return many

    async def _add(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """Counted as it goes: whoever asks next is not kept waiting for the store."""
        added: Sequence[Added] = ()
        self._counts.adding()
        try:
            added = await self._adder.add_many(tasks)
        finally:
            self._counts.added(tasks, added)
        return added

    async def _compare(self, tasks: Sequence[NewTask], many: Sequence[Added]) -> None:
        """The same uuid again changes nothing; if it was meant to, somebody should know."""
        same = [task for task, added in zip(tasks, many, strict=True) if not added.fresh and added.uuid == task.uuid]
        for task, record in zip(same, await self.store.get([task.uuid for task in same]), strict=True):
            if record is not None and _content(record.source, record.body) != _content(task.source, task.body):
                self._logs.differs(task, record)

    async def ended(self, uuid: str, timeout: float | None) -> Record:
        """Waits until the task has ended. TimeoutError: it has not; TaskNotFound: it is not there (any more)."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())
        try:
            async with asyncio.timeout(timeout):
                return await self._ended(uuid)
        except TimeoutError:
            raise TimeoutError(f"task {uuid} has not ended within {timeout:g} s") from None

    async def _ended(self, uuid: str) -> Record:
        while True:
            told = asyncio.get_running_loop().create_future()
            self._waiters[uuid].append(told)  # before the look: what ends after it is told
            try:
                (record,) = await self.store.get((uuid,))
                if record is None:
                    raise TaskNotFound(f"no task {uuid}: never added here, or no longer kept")
                if record.state in _ENDED:
                    return record
                await asyncio.wait([told], timeout=_POLL)
            finally:
                self._waiters[uuid].remove(told)
                if not self._waiters[uuid]:
                    del self._waiters[uuid]

    async def _listen(self) -> None:
        while True:
            try:
                async with aclosing(self.store.hints(self._client)) as hints:
                    async for hint in hints:
                        for uuid in list(self._waiters) if hint.resync else hint.ended & self._waiters.keys():
                            for told in self._waiters[uuid]:
                                if not told.done():
                                    told.set_result(None)
            except StoreError as error:  # the poll carries on meanwhile
                self._logs.trouble("listening for ends", error)
                await asyncio.sleep(_POLL)


def _content(source: str, body: bytes) -> tuple[object, ...]:
    """What makes two additions the same: an instant is one in every zone."""
    arguments, headers = decode_open(body)
    at = None if headers.at is None else datetime.fromisoformat(headers.at)
    return source, arguments, at, headers.label, headers.metadata
