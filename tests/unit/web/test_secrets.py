"""Secrets in the data of users: no answer of the HTTP API, message, log line, span or metric has one."""

from __future__ import annotations

import asyncio
import logging

import pytest

from onthedot.runtime import runtime
from onthedot.web.routes import ROUTES
from tests.support.waits import SOON, until
from tests.support.web_site import WebSite, web_site
from tests.unit.observability.test_tracing import Recorded
from tests.unit.web.secret_shop import PLAIN, SECRET, TEXT, SecretShop
from tests.unit.web.test_streams import stream

WITH_TEXTS = {
    "/overview": "/overview",
    "/status": "/status",
    "/tasks": "/tasks",
    "/tasks/{uuid}": "/tasks/{pay}?include=explain,timeline,related",
    "/tasks/{uuid}/explain": "/tasks/{greet}/explain",
    "/tasks/{uuid}/timeline": "/tasks/{greet}/timeline",
    "/tasks/{uuid}/result": "/tasks/{read}/result",
    "/tasks/{uuid}/items": "/tasks/{stream}/items",
    "/failures": "/failures",
    "/sources": "/sources",
    "/sources/{name}": "/sources/greet",
    "/limits": "/limits",
    "/schedules": "/schedules",
    "/schedules/{name}": "/schedules/mail",
    "/workers": "/workers",
    "/workers/{id}": "/workers/{worker}",
    "/flows": "/flows",
    "/flows/{id}": "/flows/{flow}",
    "/batches/{id}": "/batches/{batch}",
    "/batches/{id}/parts": "/batches/{batch}/parts",
    "/waiting": "/waiting",
    "/signals/{name:path}": "/signals/kept",
    "/outbox": "/outbox",
    "/outbox/events": "/outbox/events?status=failed",
    "/outbox/events/{id}": "/outbox/events/order-1",
    "/dlt": "/dlt",
    "/dlt/{id}": "/dlt/{letter}",
    "/agents": "/agents",
    "/audit": "/audit",
    "/bulk-actions/{id}": "/bulk-actions/{bulk}",
}
"""Routes that show texts of users, each with a request."""
WITHOUT_TEXTS = {
    "/schedules/{name}/plan": "/schedules/mail/plan",
    "/schedule-plan": "/schedule-plan",
    "/batches": "/batches",
    "/resume-handles": "/resume-handles?correlation=cart-1",
    "/series": "/series?names=done,failed",
    "/openapi.json": "/openapi.json",
    "/metrics": "/metrics",
    "/healthz": "/healthz",
    "/readyz": "/readyz",
}


READING = [route for route in ROUTES if route.method == "GET" and route.path != "/changes"]


def test_every_route_that_reads_is_in_these_tables() -> None:
    assert {route.path for route in READING} == {*WITH_TEXTS, *WITHOUT_TEXTS}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Spans of all tasks."""
    found = Recorded()
    monkeypatch.setattr(runtime, "find_tracing", found.find)
    return found


async def test_no_answer_log_line_span_or_metric_has_a_secret(
    recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shop = SecretShop()
    async with shop.app.running(), web_site(shop.app, access_log=True) as site:
        await shop.fill(site)
        await until(lambda: has_counted(site))
        shop.uuids["worker"] = (await site.viewer.json("/workers"))["items"][0]["id"]
        shown = {route.full_path: await get(site, shop, route.full_path, route.path) for route in READING}
        for query in (f"error=password={SECRET}", f"where=note={PLAIN}", f"q=error:https://ann:{SECRET}@bank.example"):
            assert (await site.viewer.get(f"/tasks?{query}")).status == 200
        preview = await site.operator.post("/tasks/preview", {"action": "retry", "filter": {"source": "pay"}})
        assert (preview.json()["count"] > 0, SECRET in str(preview)) == (True, False)
        refused = await site.viewer.get(f"/tasks?where=password={SECRET}")
        assert (refused.status, SECRET in str(refused)) == (403, False)
        shop.gate.set()
    assert [path for path, text in shown.items() if SECRET in text] == []
    assert [path for path in WITH_TEXTS if PLAIN not in shown[f"/api/v1{path}"]] == []
    check_lines([caplog.handler.format(record) for record in caplog.get_records("call")])
    check_spans([span.to_json() for span in recorded.spans])


async def get(site: WebSite, shop: SecretShop, full_path: str, path: str) -> str:
    """Headers and body."""
    prefix = full_path.removesuffix(path)
    target = {**WITH_TEXTS, **WITHOUT_TEXTS}[path].format(**shop.uuids)
    answer = await site.operator.at(prefix).get(target)
    assert answer.status == 200, (target, answer)
    return str(answer.headers) + answer.body.decode()


async def has_counted(site: WebSite) -> bool:
    """Failures are counted in the background."""
    return bool((await site.viewer.json("/failures"))["items"])


def check_lines(lines: list[str]) -> None:
    assert [line for line in lines if SECRET in line] == []
    for beginning in ("[retry]", "[fail]", "[dead]", "[operation]"):
        assert any(beginning in line and PLAIN in line for line in lines), beginning
    assert any(line.count("Traceback") and PLAIN in line for line in lines)
    assert any("GET /api/v1/tasks 200" in line for line in lines), "the access log"


def check_spans(spans: list[str]) -> None:
    assert [span for span in spans if SECRET in span] == []
    assert any(PLAIN in span for span in spans)


STREAMS = (
    ("overview", "/tasks/{pay}/retry", "task"),
    ("tasks&q=source:pay", "/tasks/{pay}/retry", "transitions"),
    ("task&uuid={pay}", "/tasks/{pay}/retry", "task"),
    ("flow&id={flow}", "/flows/{flow}/retry", "flow"),
    ("batch&id={held}", "/sources/names/resume", "batch"),
)
"""Each kind of stream, a change after which tasks fail, and the kind of the messages that follow."""


async def test_no_message_of_a_stream_has_a_secret() -> None:
    shop = SecretShop()
    async with shop.app.running(), web_site(shop.app) as site:
        await shop.fill(site)
        await site.operator.post("/sources/names/pause", {"reason": TEXT})
        shop.uuids["held"] = await shop.add_batch()
        for watch, change, kind in STREAMS:
            shown = await messages_after(site, watch.format(**shop.uuids), change.format(**shop.uuids), kind)
            assert [message for message in shown if SECRET in message] == [], watch
        shop.gate.set()


async def messages_after(site: WebSite, watch: str, change: str, kind: str) -> list[str]:
    """Up to one of this kind; of a task: up to one with the error of a failed one."""
    shown: list[str] = []
    async with stream(site.port, f"watch={watch}") as messages, asyncio.timeout(SOON):
        await messages.until("counts")
        assert (await site.operator.post(change, {"reason": TEXT})).status in (200, 202)
        while True:
            found, data = await messages.next()
            assert found != "end"
            shown.append(str(data))
            if found == kind and (kind != "task" or PLAIN in str(data)):
                return shown
