"""Events through the API: payloads without secrets, dead letters and their replays, agents, resume handles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onthedot import App, Reject
from onthedot.events import Event, Events
from onthedot.integrations.fastapi import User, dashboard
from onthedot.stores.contract import RelayRequest
from onthedot.stores.memory import MemoryStore
from tests.support.app_stores import AppStore, app_store, open_store
from tests.support.waits import until
from tests.support.web_client import WebClient
from tests.support.web_server import serving
from tests.support.web_site import WebSite, web_site

__all__ = ["app_store"]
TOPIC = "shop.order.events"


class Shop:
    """An app whose agent rejects every event until `accepts`."""

    def __init__(self, store: AppStore) -> None:
        events = Events(results=("Shop.Order.*",))
        self.app: App[Any] = App(store.name, store=store.url, stop_timeout=0, events=events)
        self.accepts = False
        self.handled: list[str] = []

        @self.app.agent("packer", consumes="Shop.Order.Placed")
        async def pack(event: Event[Any]) -> None:
            if not self.accepts:
                raise Reject(f"no order {event.payload['id']} at https://u:hunter2@stock.example")
            self.handled.append(event.id)

    async def publish(self, *numbers: int) -> None:
        await self.app.publish(
            *[
                Event(
                    "Shop.Order.Placed",
                    {"id": 9007199254740993 + number, "password": "hunter2"},
                    aggregate_id=str(number),
                    id=f"order-{number}",
                    correlation_id=f"cart-{number}",
                    headers={"x-api-key": "hunter2", "x-shop": "eu"},
                )
                for number in numbers
            ]
        )


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.once)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    for store in open_store(request, tmp_path):
        shop = Shop(store)
        yield shop
        shop.app.shutdown()


async def letters(site: WebSite, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await site.viewer.json(f"/dlt?{query}"))["items"]
    return found


async def has_letters(site: WebSite, number: int) -> bool:
    return len(await letters(site)) == number


async def ended(site: WebSite, action: str) -> bool:
    return (await site.viewer.json(f"/bulk-actions/{action}"))["state"] == "done"


async def test_dead_letter_is_shown_without_secrets_and_replayed_once(shop: Shop) -> None:
    async with shop.app.running(), web_site(shop.app) as site:
        await shop.publish(1, 2)
        await until(lambda: has_letters(site, 2))
        (letter,) = [each for each in await letters(site) if each["event_id"] == "order-1"]
        assert (letter["agent"], letter["topic"], letter["type"]) == ("packer", TOPIC, "Shop.Order.Placed")
        assert (letter["correlation_id"], letter["replay"], letter["error"]["type"]) == ("cart-1", 0, "onthedot.Reject")
        detail = await site.viewer.json(f"/dlt/{letter['id']}")
        assert detail["letter"] == letter
        assert '"id": 9007199254740994' in detail["payload"]["text"], "no number is rounded"
        assert (detail["payload"]["headers"]["x-shop"], detail["payload"]["cut"]) == ("eu", False)
        assert "hunter2" not in str(detail)
        assert [
            len(await letters(site, query)) for query in ("agent=packer", "agent=other", "error=order%209", "since=1h")
        ] == [2, 0, 2, 2]
        shop.accepts = True
        body = {"ids": [letter["id"], "shop.order.events.DLT:0:999"], "reason": "stock is back"}
        answer = await site.operator.post("/dlt/replay", body)
        assert (answer.status, answer.json()["found"]) == (202, 1)
        await until(lambda: ended(site, answer.json()["id"]))
        await until(lambda: shop.handled == ["order-1"])
        again = (await site.operator.post("/dlt/replay", body)).json()
        await until(lambda: ended(site, again["id"]))
        (second, first) = (await site.viewer.json("/audit?action=replay%20dead%20letters"))["items"]
        assert (first["user"], first["filter"], first["reason"]) == ("ana", "1 of 2 dead letters", "stock is back")
        assert [(each["done"], each["changed"]) for each in (first, second)] == [(1, 1), (1, 0)]
        forced = (await site.operator.post("/dlt/replay", {**body, "again": True})).json()
        await until(lambda: ended(site, forced["id"]))
        assert (await site.viewer.json(f"/bulk-actions/{forced['id']}"))["changed"] == 1


async def test_agent_has_its_work_and_its_workers(shop: Shop) -> None:
    shop.accepts = True
    async with shop.app.running(), web_site(shop.app) as site:
        await shop.publish(1, 2, 3)
        await shop.app.expect({"Shop.Order.Paid": 1}, correlation_id="cart-9", timeout=60)
        await until(lambda: has_ended(site, shop))
        found = await site.viewer.json("/agents")
        assert found["handles"]["pending"] == 1
        (agent,) = found["items"]
        assert (agent["agent"], agent["source"], agent["in_flight"]) == ("packer", "agent.packer", 0)
        assert agent["workers"] == [(await site.viewer.json("/workers"))["items"][0]["id"]]
        assert (agent["failed"], agent["retried"], agent["paused"]) == (0, 0, None)
        assert agent["lag"] is not None


async def has_ended(site: WebSite, shop: Shop) -> bool:
    (agent,) = (await site.viewer.json("/agents"))["items"]
    return len(shop.handled) == 3 and agent["in_flight"] == 0


async def test_resume_handle_shows_what_it_waits_for(shop: Shop) -> None:
    shop.accepts = True
    async with shop.app.running(), web_site(shop.app) as site:
        await shop.app.expect({"Shop.Order.Placed": 1, "Shop.Order.Paid": 1}, correlation_id="cart-1", timeout=60)
        await shop.publish(1)
        await until(lambda: has_arrival(site))
        (handle,) = (await site.viewer.json("/resume-handles?correlation=cart-1&status=pending"))["items"]
        assert (handle["received"], handle["total"], handle["status"]) == (1, 2, "pending")
        assert [each["event_id"] for each in handle["arrived"]] == ["order-1"]
        assert (await site.viewer.json("/resume-handles?correlation=cart-1&status=resumed"))["items"] == []
        assert (await site.viewer.json("/resume-handles?correlation=nobody"))["items"] == []
        assert (await site.viewer.get("/resume-handles")).status == 400


async def has_arrival(site: WebSite) -> bool:
    return bool((await site.viewer.json("/resume-handles?correlation=cart-1"))["items"][0]["arrived"])


async def test_payload_of_a_failed_event_is_shown_before_it_is_sent_again() -> None:
    shop = Shop(AppStore("shop", "memory://"))
    async with shop.app, web_site(shop.app) as site:
        await shop.publish(1)
        store = shop.app.runtime.store
        assert isinstance(store, MemoryStore)
        await store.heartbeat("r", b"{}", 60_000)
        result = await store.relay("r", (), {}, RelayRequest())
        await store.relay("r", (), {each.seq: "too large" for each in result.events}, None)
        (row,) = (await site.viewer.json("/outbox/events?status=failed"))["items"]
        assert (await site.viewer.json("/outbox"))["failed_events"] == [row]
        detail = await site.viewer.json(f"/outbox/events/{row['id']}")
        assert (detail["event"], detail["payload"]["size"]) == (
            row,
            len(b'{"id":9007199254740994,"password":"hunter2"}'),
        )
        assert '"id": 9007199254740994' in detail["payload"]["text"]
        assert "hunter2" not in str(detail)
        assert (await site.viewer.get("/outbox/events/nothing")).status == 404
        assert (await site.operator.post(f"/outbox/{row['id']}/retry", {})).json() == {"changed": 1}
        assert (await site.viewer.json("/outbox/events?status=failed"))["items"] == []


@pytest.mark.once
@pytest.mark.parametrize("app_store", ["redis"], indirect=True)
async def test_store_without_an_outbox_has_none_of_these(app_store: AppStore) -> None:
    app: App[Any] = App(app_store.name, store=app_store.url)
    async with app, web_site(app) as site:
        answers = [
            await site.viewer.get("/outbox"),
            await site.viewer.get("/outbox/events/x"),
            await site.viewer.get("/dlt"),
            await site.viewer.get("/dlt/x"),
            await site.operator.post("/dlt/replay", {"ids": ["x"]}),
            await site.viewer.get("/agents"),
            await site.viewer.get("/resume-handles?correlation=x"),
        ]
        assert {(each.status, each.json()["error"]["code"]) for each in answers} == {(404, "not_available")}
        assert "outbox" not in (await site.viewer.json("/status"))["features"]


async def test_dead_letters_of_another_bus_are_refused_with_its_name(tmp_path: Path) -> None:
    app: App[Any] = App("shop", store=f"sqlite:///{tmp_path}/shop.db")
    async with app, web_site(app) as site:
        relay = b'{"component": "relay", "host": "w-1", "pid": 7, "bus": "Kafka at k:9092"}'
        await app.runtime.store.heartbeat("r", relay, 60_000)
        answer = await site.viewer.get("/dlt")
        assert (answer.status, answer.json()["error"]["code"]) == (404, "not_available")
        assert "Kafka at k:9092" in answer.json()["error"]["message"]


async def test_events_of_another_database_are_refused(tmp_path: Path) -> None:
    """The outbox of the tasks' store would take replays that no relay reads."""
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    app: App[Any] = App("shop", store=url, events=Events(outbox=f"sqlite:///{tmp_path / 'events.db'}"))
    async with app, serving(dashboard(app, user=operator), lifespan="off") as server:
        client = WebClient(server.port, {})
        assert "outbox" not in (await client.json("/status"))["features"]
        for method, path, body in (
            ("GET", "/outbox", None),
            ("GET", "/agents", None),
            ("GET", "/dlt", None),
            ("POST", "/dlt/replay", {"ids": ["x"]}),
        ):
            answer = await client.send(method, path, body, {"Authorization": "Bearer of the program"})
            assert answer.status == 404, path
            assert "Events(outbox=…)" in answer.json()["error"]["message"]


def operator(_: object) -> User:
    return User("ana", "operator")
