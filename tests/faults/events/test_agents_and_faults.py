"""Agents while members of their group come and go, and while Postgres cannot be reached, on Kafka.

No event is lost, none runs twice, and no offset passes an event that is open.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from onthedot import App
from onthedot.events import Event
from onthedot.events.cloudevents import to_message
from onthedot.events.components import Components
from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from onthedot.events.subscription import AgentSubscription
from onthedot.runtime.components import ComponentFactory
from tests.acceptance.row_e.event_systems import PARTITIONS, REQUESTED, EventSystem, open_system
from tests.faults import LONG, scaled
from tests.faults.proxy import proxy
from tests.support.services.postgres import Service
from tests.support.waits import until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600 if LONG else 120)]

AGENT = "worldbuilder"
HANDLER = 5.0 if LONG else 1.0  # seconds
INTERVAL = 2.0 if LONG else 1.0  # seconds between two rebalances
REBALANCES = scaled(4, 30)
OUTAGE = 20.0 if LONG else 3.0  # seconds


@pytest.fixture
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventSystem]:
    yield from open_system("kafka", request, tmp_path)


class Handled:
    """The runs that an agent has begun and ended, with the places of the events."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.begun: Counter[str] = Counter()
        self.ended: set[str] = set()

    def app(self, system: EventSystem) -> App[Any]:
        app = system.app(concurrency=100)

        @app.agent(AGENT, consumes=(REQUESTED,))
        async def worldbuilder(event: Event[Any]) -> None:
            self.begun[event.id] += 1
            await asyncio.sleep(self._seconds)
            self.ended.add(event.id)

        return app


class Offsets:
    """The committed offsets of the agent's group, as another program sees them."""

    def __init__(self, admin: Any, group: str) -> None:
        self._admin = admin
        self._group = group

    async def read(self) -> dict[int, int]:
        found = await self._admin.list_consumer_group_offsets(self._group)
        return {place.partition: each.offset for place, each in found.items() if each.offset >= 0}


@asynccontextmanager
async def offsets_of(system: EventSystem) -> AsyncIterator[Offsets]:
    assert system.kafka is not None
    admin = AIOKafkaAdminClient(bootstrap_servers=system.kafka.address)
    await admin.start()
    try:
        yield Offsets(admin, f"{system.name}.{AGENT}")
    finally:
        await admin.close()


async def send(system: EventSystem, events: list[Event[Any]]) -> None:
    """To Kafka, without the outbox."""
    assert system.kafka is not None
    bus = KafkaBus(Kafka(system.kafka.address))
    for event in events:
        partition = bus.partition_of(event.key.encode(), PARTITIONS)
        await bus.send(system.requests, partition, [to_message(event, "/genesis")])
    await bus.close()


async def passed(system: EventSystem, app: App[Any], offsets: dict[int, int]) -> set[str]:
    """The events before these offsets."""
    return {
        dict(record.message.headers)["ce_id"].decode()
        for record in await system.read(app, system.requests)
        if record.offset < offsets.get(record.partition, 0)
    }


def subscription_of(app: App[Any]) -> AgentSubscription:
    (found,) = [each for each in app.runtime.components.all if isinstance(each, AgentSubscription)]
    return found


async def join(app: App[Any]) -> tuple[Components, AgentSubscription]:
    """Another member of the group, as another process would have it."""
    outbox = app.runtime.find_outbox()
    assert outbox is not None
    factory = ComponentFactory(app.runtime.config, app.runtime.store, outbox, app.runtime.new_observer())
    subscription = factory.subscriptions(app.runtime.store)(subscription_of(app).source)
    assert isinstance(subscription, AgentSubscription)
    components = Components([subscription], factory.connection)
    await components.start()
    return components, subscription


@pytest.mark.timed
async def test_rebalances_lose_and_repeat_nothing_while_handlers_run(system: EventSystem) -> None:
    handled = Handled(HANDLER)
    app = handled.app(system)
    sent: list[str] = []
    durations: list[float] = []
    checked = 0

    async def publish() -> None:
        while True:
            number = len(sent)
            sent.append(system.request(number).id)
            await app.publish(system.request(number))
            await asyncio.sleep(0.05)

    async with app.running(), offsets_of(system) as offsets:
        publishing = asyncio.create_task(publish())
        await until(lambda: len(handled.ended) > 5)
        members = [subscription_of(app)]
        other: Components | None = None

        async def is_settled() -> bool:
            owned = [set(await member.lag()) for member in members]
            return all(owned) and sum(map(len, owned)) == len(set[object]().union(*owned)) == PARTITIONS

        for _ in range(REBALANCES):
            began = time.monotonic()
            if other is None:
                other, member = await join(app)
                members.append(member)
            else:
                members.pop()
                await other.stop()
                other = None
            await until(is_settled)
            durations.append(time.monotonic() - began)
            open_and_passed = await passed(system, app, await offsets.read()) - handled.ended
            assert not open_and_passed
            checked += 1
            await asyncio.sleep(max(0.0, INTERVAL - (time.monotonic() - began)))
        publishing.cancel()
        await asyncio.wait([publishing])
        await until(lambda: handled.ended >= set(sent[:-1]))
        if other is not None:
            await other.stop()
        await system.committed(app, AGENT)
    times = ", ".join(f"{seconds:.2f}" for seconds in durations)
    print(f"\n{len(handled.begun)} events, {checked} rebalances of {times} s")
    assert set(handled.begun.values()) == {1}
    assert max(durations) < scaled(3, 1)


async def test_copies_over_rebalances_run_once(system: EventSystem) -> None:
    """A copy that another member of the group reads is found in the store, also while the first one runs."""
    handled = Handled(HANDLER)
    app = handled.app(system)
    events = [system.request(number) for number in range(4 * PARTITIONS)]

    async def send_copies() -> None:
        """In the opposite order, too: with that a copy may be the first of its partition."""
        await send(system, [*events, *reversed(events)])

    async with app.running():
        await send_copies()
        await until(lambda: len(handled.begun) == len(events))
        other, member = await join(app)

        async def both_have_some() -> bool:
            return all([await each.lag() for each in (subscription_of(app), member)])

        await until(both_have_some)
        await send_copies()
        await until(lambda: len(handled.ended) == len(events))
        await other.stop()
        await send_copies()
        last = system.request(99)
        await send(system, [last])
        await until(lambda: last.id in handled.ended)
        await system.committed(app, AGENT)
    assert set(handled.begun.values()) == {1}


async def test_events_wait_while_postgres_cannot_be_reached(system: EventSystem, postgres: Service) -> None:
    """Records that arrive meanwhile are not lost: their offsets stay."""
    handled = Handled(0.05)
    port = int(system.store.rpartition(":")[2].partition("/")[0])
    with proxy(port) as link:
        system.store = system.store.replace(f":{port}/", f":{link.port}/")
        app = handled.app(system)
        events = [system.request(number) for number in range(300)]
        async with app.running(), offsets_of(system) as offsets:
            await send(system, events[:100])
            await until(lambda: len(handled.ended) == 100)
            await system.committed(app, AGENT)
            before = await offsets.read()
            link.cut_off()
            await send(system, events[100:200])
            await asyncio.sleep(OUTAGE)
            assert await offsets.read() == before
            assert len(handled.begun) == 100
            link.restore()
            seconds = await until(lambda: len(handled.ended) == 200)
            await send(system, events[200:])
            await until(lambda: len(handled.ended) == 300)
            await system.committed(app, AGENT)
            print(f"\nhandled {seconds:.1f} s after Postgres was back")
            assert sum((await offsets.read()).values()) == 300
    assert set(handled.begun.values()) == {1}
