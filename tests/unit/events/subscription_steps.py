"""A subscription of an agent on a memory store; the test drives the clock and decides what the bus answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.clock.wakeup import WakeUp
from onthedot.errors import StoreUnavailable
from onthedot.events.bus import BusMessage, BusRecord, Revoked, TopicPartition
from onthedot.events.bus_connection import BusConnection
from onthedot.events.end_hints import EndHints
from onthedot.events.event import Event
from onthedot.events.received_records import decode_event_body, task_uuid
from onthedot.events.subscription import AgentSubscription
from onthedot.observability.events import Observer
from onthedot.operations.modes import RecentModes
from onthedot.stores.contract import Added, Hint, Hints, Limit, NewTask, Record, StoreTraits
from onthedot.stores.memory import MemoryStore
from tests.contract.steps import Worker

PLACED = "Shop.Order.Placed"
TOPIC = "shop.order.events"


class SharedMemoryStore(MemoryStore):
    """A memory store whose hints may be lost, and that can be made unreachable."""

    traits = StoreTraits(shared=True, synchronous=True, cancel_safe=True)

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.is_down = False
        self.loses_hints = False
        self.adds: list[int] = []  # tasks of each call
        self.reads: list[int] = []  # tasks of each look

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailable("no answer")

    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        self._check()
        self.adds.append(len(tasks))
        return await super().add(tasks, deadline)

    async def get(self, uuids: Sequence[str]) -> Sequence[Record | None]:
        self._check()
        self.reads.append(len(uuids))
        return await super().get(uuids)

    def hints(self, session: str) -> Hints:
        return _LossyHints(super().hints(session), self)

    async def limits(self) -> Sequence[Limit]:
        self._check()
        return await super().limits()


class _LossyHints:
    def __init__(self, hints: Hints, store: SharedMemoryStore) -> None:
        self._hints = hints
        self._store = store
        self.aclose = hints.aclose

    def __aiter__(self) -> Hints:
        return self

    async def __anext__(self) -> Hint:
        hint = await self._hints.__anext__()
        return Hint() if self._store.loses_hints else hint


class TestSubscription:
    """Reads the logs of a `SubscribedBus`; the test revokes partitions."""

    __test__ = False

    def __init__(self, bus: SubscribedBus, on_revoked: Revoked) -> None:
        self._bus = bus
        self._on_revoked = on_revoked
        self._wakeup = WakeUp(bus.clock)
        self.paused: set[TopicPartition] = set()
        self.committed: dict[TopicPartition, int] = {}
        self.commits: list[dict[TopicPartition, int]] = []
        self.is_closed = False
        self.reads = 0
        self.errors: list[Exception] = []  # of the next reads
        self.commit_errors: list[Exception] = []

    def deliver(self, records: Sequence[BusRecord]) -> None:
        self._wakeup.set()

    async def read(self, limit: int, timeout: float) -> Sequence[BusRecord]:
        self.reads += 1
        if self.errors:
            raise self.errors.pop(0)
        self._wakeup.clear()
        records = self._take(limit)
        if not records and timeout:
            await self._wakeup.wait(timeout * 1000)
            records = self._take(limit)
        return records

    def _take(self, limit: int) -> list[BusRecord]:
        found: list[BusRecord] = []
        for partition, log in self._bus.logs.items():
            while partition not in self.paused and log and len(found) < limit:
                found.append(log.popleft())
        return found

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.paused.difference_update(partitions)
        self._wakeup.set()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.commit_errors:
            raise self.commit_errors.pop(0)
        self.committed |= offsets
        self.commits.append(dict(offsets))

    async def lag(self) -> Mapping[TopicPartition, int]:
        return {partition: len(log) for partition, log in self._bus.logs.items()}

    async def close(self) -> None:
        self.is_closed = True

    async def revoke(self, *partitions: TopicPartition) -> None:
        self.paused.difference_update(partitions)
        await self._on_revoked(partitions)


class SubscribedBus:
    """A bus to which the test sends."""

    to_log = False

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.logs: defaultdict[TopicPartition, deque[BusRecord]] = defaultdict(deque)
        self.offsets: defaultdict[TopicPartition, int] = defaultdict(int)
        self.subscriptions: list[TestSubscription] = []
        self.groups: list[tuple[str, tuple[str, ...]]] = []
        self.subscribe_errors: list[Exception] = []

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def partition_count(self, topic: str) -> int:
        return 4

    def partition_of(self, key: bytes, count: int) -> int:
        return 0

    async def send(self, topic: str, partition: int, messages: Sequence[BusMessage]) -> None:
        for message in messages:
            self.append(message, partition, topic)

    def append(self, message: BusMessage, partition: int = 0, topic: str = TOPIC) -> BusRecord:
        place = TopicPartition(topic, partition)
        record = BusRecord(topic, partition, self.offsets[place], message)
        self.offsets[place] += 1
        self.logs[place].append(record)
        for each in self.subscriptions:
            each.deliver([record])
        return record

    async def subscribe(self, group: str, topics: Sequence[str], on_revoked: Revoked) -> TestSubscription:
        if self.subscribe_errors:
            raise self.subscribe_errors.pop(0)
        self.groups.append((group, tuple(topics)))
        self.subscriptions.append(TestSubscription(self, on_revoked))
        return self.subscriptions[-1]

    async def peek(self, topic: str) -> AsyncIterator[BusRecord]:
        raise NotImplementedError
        yield


class Received(Observer):
    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.failures: list[str] = []
        self.recovered: list[str] = []

    def events_received(self, agent: str, outcome: str, count: int) -> None:
        self.counts[outcome] += count

    def store_failed(self, operation: str, error: BaseException) -> None:
        self.failures.append(operation)

    def store_recovered(self, operation: str) -> None:
        self.recovered.append(operation)

    def bus_failed(self, operation: str, error: Exception) -> None:
        self.failures.append(operation)

    def bus_recovered(self, operation: str) -> None:
        self.recovered.append(operation)


class Member:
    """One subscription, and a worker that ends tasks when the test says so."""

    def __init__(self, bus: SubscribedBus, store: SharedMemoryStore, **attributes: Any) -> None:
        self.bus = bus
        self.store = store
        self.clock = bus.clock
        self.app = App("shop", store="memory://")

        @self.app.agent("mailer", consumes=(PLACED,), **attributes)
        async def mailer(event: Event) -> None: ...

        source = self.app.runtime.agents.sources["mailer"]
        self.observer = Received()
        connection = BusConnection(bus, "a test", self.clock, self.observer)
        ends = EndHints(store, f"ends-{id(self)}", self.clock, self.observer)
        modes = RecentModes(store, self.clock)
        self.component = AgentSubscription(source, connection, store, ends, modes, self.clock, self.observer)
        self.worker = Worker(store, f"worker-{id(self)}")

    @property
    def subscription(self) -> TestSubscription:
        return self.bus.subscriptions[-1]

    async def settle(self) -> None:
        """Until nothing happens before the next timer."""
        self.component.recheck()
        async with asyncio.timeout(10):
            await self.component.idle.wait()

    async def quiet(self) -> None:
        """Without a look of its own: what hints and timers have woken has happened."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def advance(self, ms: float) -> None:
        self.clock.advance(ms)
        await self.quiet()

    def send(self, event_id: str, key: str = "k", partition: int = 0, **fields: Any) -> None:
        headers = {"ce_specversion": "1.0", "ce_id": event_id, "ce_type": PLACED, **fields}
        encoded = tuple([(name, value.encode()) for name, value in headers.items()])
        self.bus.append(BusMessage(key.encode(), b"{}", encoded), partition)

    async def begin(self) -> list[str]:
        """Claims what is ready; returns the ids of the events that begin now."""
        await self.worker.heartbeat()
        claim = await self.worker.claim("agent.mailer")
        return [decode_event_body(record.body)[0].event for record in claim.tasks]

    async def end(self, *events: str) -> None:
        for event in events:
            assert await self.worker.settle(self.worker.done(task_uuid("mailer", event))) == ["ok"]

    async def exists(self, event: str) -> bool:
        (record,) = await MemoryStore.get(self.store, [task_uuid("mailer", event)])
        return record is not None

    def offset(self, partition: int = 0) -> int | None:
        return self.subscription.committed.get(TopicPartition(TOPIC, partition))


@asynccontextmanager
async def running(*members: Member) -> AsyncGenerator[None, None]:
    for member in members:
        await member.component.start()
        await member.settle()
    try:
        yield
    finally:
        for member in members:
            await member.component.stop()


def new_member(**attributes: Any) -> Member:
    clock = ManualClock()
    return Member(SubscribedBus(clock), SharedMemoryStore(clock), **attributes)
