"""One event loop's way to the store: it adds, and it waits for ends."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from onthedot.client.add_batcher import AddBatcher
from onthedot.client.pending_gate import PendingGate, PendingLimits
from onthedot.client.status_counts import StatusCounts
from onthedot.clock.protocol import Clock
from onthedot.codec.untyped import decode_untyped
from onthedot.definitions.functions import Unplaced
from onthedot.errors import StoreError, TaskNotFound
from onthedot.model.limits import LaneRule, lane_rule
from onthedot.observability.logs import LogObserver
from onthedot.operations import Operations
from onthedot.operations.limits import CodeDefinitions
from onthedot.stores.contract import Added, NewTask, Record, Store

_ENDED = ("succeeded", "failed", "cancelled")
_FRESH = 1.0  # seconds for which what was read of the limits is good enough
_POLL = 1.0  # seconds: a hint may be lost, and other processes' tasks reply to them


@dataclass(frozen=True)
class ClientConfig:
    """What all links of an app have in common."""

    client: str  # the name by which the store knows this process when it only adds and looks
    logs: LogObserver
    clock: Clock
    counts: StatusCounts
    code: CodeDefinitions
    bounds: PendingLimits


class StoreClient:
    def __init__(self, store: Store, shared: ClientConfig) -> None:
        self.store = store
        self.operations: Operations = Operations(store, shared.client, shared.clock, shared.code, shared.logs)
        self._client, self._logs, self._counts = shared.client, shared.logs, shared.counts
        self._bounds = shared.bounds
        self._backlog = PendingGate(store, shared.bounds)
        self._rules: dict[str, LaneRule | None] = {}  # by source
        self._looked = -_FRESH
        self._adder = AddBatcher(store)
        self._waiters: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)
        self._listener: asyncio.Task[None] | None = None
        self._counter: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.store.open()
        if self._counted:
            try:
                await self.watch()
            except BaseException:
                await self.store.close()
                raise

    async def watch(self) -> None:
        """Keeps the counts fresh from now on."""
        await self._counts.look_now(self.store)  # first: what is added then is counted on top of it
        if self._counter is None:
            self._counter = asyncio.create_task(self._counts.run(self.store))

    @property
    def _counted(self) -> bool:
        return self._counts.watched and not self.store.traits.synchronous

    async def ready(self) -> None:
        """Done as soon as there is a link at all."""

    async def drain_waiters(self, patience: float) -> None:
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
        await self.store.close()

    async def add(self, task: NewTask) -> Added:
        if type(task) is Unplaced:
            (task,) = await self.route((task,))
        if self._bounds.apply() or self._counted:
            (added,) = await self._add((task,))
        else:
            added = await self._adder.add(task)
        if added.fresh:
            self._logs.tasks_added((task,))
        else:
            await self._compare([task], [added])
        return added

    async def add_many(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        if Unplaced in set(map(type, tasks)):
            tasks = await self.route(tasks)
        many = await self._add(tasks)
        await self._compare(tasks, many)
        self._logs.tasks_added([task for task, added in zip(tasks, many, strict=True) if added.fresh])
        return many

    async def _add(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """Within the bounds, if there are any."""
        if not self._bounds.apply():
            return await self._add_counted(tasks)
        coming = await self._backlog.reserve(tasks)
        try:
            return await self._add_counted(tasks)
        finally:
            self._backlog.release(coming)

    async def _add_counted(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """Counted as it goes, if somebody asks: then that one is not kept waiting for the store."""
        if not self._counted:
            return await self._adder.add_many(tasks)
        added: Sequence[Added] = ()
        self._counts.add_started()
        try:
            added = await self._adder.add_many(tasks)
        finally:
            self._counts.add_finished(tasks, added)
        return added

    async def import_tasks(self, tasks: Sequence[NewTask]) -> None:
        """From another store, where they have been added: whatever their number."""
        await self._adder.add_many(tasks)

    async def route(self, tasks: Sequence[NewTask]) -> list[NewTask]:
        """What is made without its code goes where the code, when it last ran, told the store that it belongs."""
        if time.monotonic() - self._looked >= _FRESH:  # a read an addition would cost half as much as the addition
            limits = await self.store.limits()
            self._rules = {name: lane_rule(limits, name) for name in {limit.name for limit in limits}}
            self._looked = time.monotonic()
        rules = self._rules
        return [_with_lane(task, rules.get(task.source)) if type(task) is Unplaced else task for task in tasks]

    async def _compare(self, tasks: Sequence[NewTask], many: Sequence[Added]) -> None:
        """The same uuid again changes nothing; if it was meant to, somebody should know."""
        same = [task for task, added in zip(tasks, many, strict=True) if not added.fresh and added.uuid == task.uuid]
        for task, record in zip(same, await self.store.get([task.uuid for task in same]), strict=True):
            if record is not None and _identity(record.source, record.body) != _identity(task.source, task.body):
                self._logs.differs(task, record)

    async def wait_for_end(self, uuid: str, timeout: float | None) -> Record:
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
                self._logs.store_failed("listening for ends", error)
                await asyncio.sleep(_POLL)


def _with_lane(task: NewTask, rule: LaneRule | None) -> NewTask:
    if rule is None:
        return task
    lane, cost = rule.of(task.source, decode_untyped(task.body)[0])
    return replace(task, lane=lane, policy=replace(task.policy, cost=cost))


def _identity(source: str, body: bytes) -> tuple[object, ...]:
    """What makes two additions the same: an instant is one in every zone."""
    arguments, headers = decode_untyped(body)
    at = None if headers.at is None else datetime.fromisoformat(headers.at)
    return source, arguments, at, headers.label, headers.metadata
