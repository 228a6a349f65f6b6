"""An app whose data has a secret wherever users can write one, and beside it a text that everybody may read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from onthedot import App, BatchPolicy, Reject, SizeTable, current_task, group
from onthedot.events import Event, Events
from onthedot.stores.contract import RelayRequest
from onthedot.stores.memory import MemoryStore
from tests.support.waits import until
from tests.support.web_site import WebSite

SECRET = "hunter2"
PLAIN = "the-bank-is-down"
TEXT = f"{PLAIN} password='{SECRET}' https://ann:{SECRET}@bank.example Bearer {SECRET}"
DATA: dict[str, Any] = {"note": PLAIN, "apiKey": SECRET, "bank": [{"url": f"https://ann:{SECRET}@bank.example"}]}
TOPIC = "shop.order.events"


class SecretShop:
    """uuids: of tasks, flows, batches and the like, by a name in these tests. gate: ends the task `hold`."""

    def __init__(self) -> None:
        self.app: App[Any] = App("shop", store="memory://", stop_timeout=0, events=Events(results=("Shop.Order.*",)))
        self.gate = asyncio.Event()
        self.uuids: dict[str, str] = {}
        self._declare(self.app)

    def _declare(self, app: App[Any]) -> None:
        @app.task(max_retries=1, backoff=0.0)
        async def pay(data: dict[str, Any], password: str = "") -> None:
            raise ValueError(TEXT)

        @app.task
        async def greet(data: dict[str, Any]) -> None: ...

        @app.task
        async def hold(data: dict[str, Any]) -> None:
            await self.gate.wait()

        @app.task
        async def read(data: dict[str, Any]) -> dict[str, Any]:
            return data

        @app.task
        async def stream(data: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
            yield data

        @app.task
        async def approve(data: dict[str, Any]) -> object:
            return await current_task().wait_for("approved")

        @app.task
        async def total(found: list[object]) -> None: ...

        @app.task(batch=BatchPolicy(split=SizeTable({}, other=1)), max_retries=0)
        async def names(count: int, data: dict[str, Any]) -> list[dict[str, Any]]:
            if current_task().metadata["subtask_id"].endswith(":1"):
                raise ValueError(TEXT)
            return [DATA] * count

        @app.agent("packer", consumes="Shop.Order.Placed")
        async def pack(event: Event[dict[str, Any]]) -> None:
            raise Reject(TEXT)

        self._names = names

    async def fill(self, site: WebSite) -> None:
        """Everything that is not `greet` has ended, but `hold`, which runs, and `approve`, which waits."""
        await self._refuse_event()
        await self._fail_and_succeed()
        await self._change(site)
        await self.app.publish(self._event(2))
        await until(lambda: self._has_dead_letter(site))
        self.uuids["letter"] = (await site.viewer.json("/dlt"))["items"][0]["id"]
        await site.operator.post("/sources/agent.packer/pause", {"reason": TEXT})
        await self.app.expect({"Shop.Order.Paid": 1}, correlation_id="cart-1", timeout=3600)

    async def _fail_and_succeed(self) -> None:
        app = self.app
        handles = {
            name: await app.named(name).options(label=TEXT, metadata=DATA).enqueue(data=DATA)
            for name in ("pay", "read", "stream", "hold", "approve")
        }
        for name in ("pay", "read", "stream"):
            await until(handles[name].done)
        await until(lambda: self._is(handles["hold"].uuid, "running"))
        await until(lambda: self._is(handles["approve"].uuid, "waiting"))
        self.uuids |= {name: handle.uuid for name, handle in handles.items()}
        parts = group(app.named("pay").s(data=DATA, password=SECRET) for _ in range(2))
        flow = await (parts | app.named("total").options(label=TEXT)).enqueue()
        await until(flow.done)
        self.uuids["flow"] = flow.uuid
        self.uuids["batch"] = await self.add_batch()
        await until(lambda: self._is(self.uuids["batch"], "succeeded"))

    async def add_batch(self) -> str:
        """Returns its id."""
        return (await self.app.batch(self._names, count=2, args={"data": DATA})).id

    async def _is(self, uuid: str, state: str) -> bool:
        return (await self.app.get(uuid)).state == state

    async def _change(self, site: WebSite) -> None:
        """By requests, with reasons that are in the audit log."""
        schedule = {"name": "mail", "source": "greet", "args": {"data": DATA}, "rule": "0 8 * * *", "reason": TEXT}
        for method, path, body in (
            ("POST", "/sources/greet/pause", {"reason": TEXT}),
            ("POST", "/outbox/pause", {"reason": TEXT, "topic": "other"}),
            ("PUT", "/limits/greet", {"cap": 3, "reason": TEXT}),
            ("POST", "/schedules", schedule),
            ("POST", "/schedules/mail/pause", {"reason": TEXT}),
            ("POST", "/signals/kept", {"payload": DATA, "reason": TEXT}),
            ("POST", f"/tasks/{self.uuids['pay']}/retry", {"reason": TEXT}),
        ):
            answer = await site.operator.send(method, path, body)
            assert answer.status < 300, (path, answer)
            assert SECRET.encode() not in answer.body, path
        added = await site.operator.post("/tasks", {"source": "greet", "args": {"data": DATA}, "label": TEXT})
        self.uuids["greet"] = added.json()["uuid"]
        bulk = await site.operator.post("/tasks/retry", {"uuids": [self.uuids["pay"]], "reason": TEXT})
        self.uuids["bulk"] = bulk.json()["id"]
        await until(lambda: self._is(self.uuids["pay"], "failed"))

    def _event(self, number: int) -> Event[Any]:
        return Event(
            "Shop.Order.Placed",
            DATA,
            aggregate_id=str(number),
            id=f"order-{number}",
            headers={"x-api-key": SECRET, "x-note": PLAIN},
        )

    async def _refuse_event(self) -> None:
        """An event that the bus refuses."""
        await self.app.publish(self._event(1))
        store = self.app.runtime.store
        assert isinstance(store, MemoryStore)
        await store.heartbeat("refusing", b"{}", 60_000)
        result = await store.relay("refusing", (), {}, RelayRequest())
        await store.relay("refusing", (), {each.seq: TEXT for each in result.events}, None)
        await store.close_session("refusing")

    async def _has_dead_letter(self, site: WebSite) -> bool:
        return bool((await site.viewer.json("/dlt"))["items"])
