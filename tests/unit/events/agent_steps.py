"""An app with an agent under test, and what its outbox has."""

from __future__ import annotations

from typing import Any

import msgspec

from onthedot import App
from onthedot.events.event import Event
from onthedot.stores.capabilities import Outbox, capability
from onthedot.stores.contract import NewEvent, OutboxEvent
from onthedot.testing import TestApp

REQUESTED = "Genesis.Session.DetailBatchGenerationRequested"
CREATED = "Genesis.Session.DetailBatchCreated"
FAILED = "Genesis.Session.DetailBatchFailed"


class Request(msgspec.Struct):
    session_id: str
    task_id: str
    count: int = 1


class HttpError(Exception):
    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def request(task_id: str = "t1", **fields: Any) -> Event[Any]:
    payload = {"session_id": "s1", "task_id": task_id, "count": 2}
    return Event(REQUESTED, payload, **{"aggregate_id": "s1", "key": task_id, "id": f"e-{task_id}", **fields})


class Bench:
    """The app, and what the test has seen of it."""

    def __init__(self) -> None:
        self.app = App("genesis")
        self.test = TestApp(self.app)
        self.seen: list[Any] = []

    def agent(self, **attributes: Any) -> Any:
        return self.app.agent("worldbuilder", consumes=(REQUESTED,), **attributes)

    async def outbox(self) -> list[OutboxEvent]:
        store = capability(self.app.runtime.store, Outbox, "test")
        return list(await store.find_events({}, 0, 1000))

    async def published(self, *, raw: bool = False) -> list[NewEvent]:
        return [row.event for row in await self.outbox() if (row.event.raw is not None) == raw]

    async def run(self, event: Event[Any]) -> Any:
        (uuid,) = self.test.deliver(event)
        await self.test.run_until_idle()
        return await self.info(uuid)

    async def info(self, uuid: str) -> Any:
        info = await self.app.operations.get(uuid)
        assert info is not None
        return info
