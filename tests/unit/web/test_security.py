"""Host, prefix, headers, sizes, and requests that nobody should send."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from onthedot import App
from onthedot.errors import DeclarationError
from onthedot.web.routes import ROUTES
from onthedot.web.settings import WebSettings, token_credential
from tests.support.web_client import WebClient
from tests.support.web_site import OPERATOR_TOKEN, VIEWER_TOKEN, web_site
from tests.unit.web.test_credentials import path_of


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[", "a b"]
)
async def test_other_host_is_refused(shop: App[Any], host: str) -> None:
    async with shop, web_site(shop) as site:
        for path in ("/api/v1/status", "/healthz", "/", "/static/x"):
            answer = await site.operator.at("").get(path, Host=host)
            assert answer.status == 421, path


async def test_loopback_names_and_the_public_host_are_accepted(shop: App[Any]) -> None:
    async with shop, web_site(shop, public_url="https://ops.example.com") as site:
        for host in (
            "localhost",
            "127.0.0.1:1",
            "[::1]:80",
            "shop.localhost",
            "ops.example.com",
            "OPS.example.com:443",
        ):
            assert (await site.operator.get("/status", Host=host)).status == 200, host


async def test_every_answer_has_the_security_headers(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        for path in ("/api/v1/status", "/api/v1/nothing", "/healthz", "/", "/login", "/static/none"):
            headers = (await site.operator.at("").get(path)).headers
            assert "default-src 'none'" in headers["content-security-policy"], path
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-opener-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in headers


async def test_https_changes_cookie_and_headers(shop: App[Any]) -> None:
    for url, name, path in (
        ("https://ops.example.com", "__Host-onthedot_", "Path=/"),
        ("https://ops.example.com/tasks", "__Secure-onthedot_", "Path=/tasks"),
    ):
        async with shop, web_site(shop, public_url=url) as site:
            answer = await site.nobody.post("/session", {"token": OPERATOR_TOKEN})
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith(name)
            assert {"Secure", path} <= {part.strip() for part in cookie.split(";")}
            assert "max-age" in answer.headers["strict-transport-security"]


async def test_prefix_is_passed_on_or_stripped_by_the_proxy(shop: App[Any]) -> None:
    async with shop, web_site(shop, prefix="/ops/jobs") as site:
        for prefix in ("/ops/jobs/api/v1", "/api/v1"):
            assert (await site.operator.at(prefix).get("/status")).status == 200
        page = WebClient(site.port, {"Accept": "text/html"}, "")
        for path in ("/ops/jobs/tasks", "/tasks"):
            answer = await page.get(path)
            assert (answer.status, answer.headers["location"]) == (303, "/ops/jobs/login")


async def test_link_with_a_token_signs_in_and_leaves_the_clean_address(shop: App[Any], caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    async with shop, web_site(shop, access_log=True) as site:
        page = site.nobody.at("")
        answer = await page.get(f"/tasks?q=a%20b&token={OPERATOR_TOKEN}")
        assert (answer.status, answer.headers["location"]) == (303, "/tasks?q=a+b")
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert (await page.get("/tasks", Cookie=cookie)).status in (200, 503)
        assert (await page.get("/tasks?token=wrong-token")).status == 401
    shown = caplog.text + str(answer)
    assert OPERATOR_TOKEN not in shown
    assert VIEWER_TOKEN not in shown


async def test_too_large_requests_are_refused(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        assert (await site.operator.get("/tasks?q=" + "x" * 9000)).status == 413
        assert (await site.operator.get("/status", X_Long="x" * 17_000)).status == 413
        answer = await site.nobody.post("/session", {"token": "x" * 70_000})
        assert answer.status == 413
        deep = b'{"token": ' + b"[" * 100 + b"]" * 100 + b"}"
        answer = await site.nobody.send("POST", "/session", deep, {"Content-Type": "application/json"})
        assert answer.status == 422


BAD_QUERIES = (
    "limit=0", "limit=201", "limit=x", "limit=1&limit=2", "unknown=1", "cursor=nonsense", "cursor=after:x",
    "cursor=parked:99999999999999999999999", "state=nothing", "since=yesterday", "since=-1h", "since=9999-99-99",
    "until=99999999999999999999d", "since=0001-01-01T00:00%2B23:59", "where=x", "where=a:=[", "where=a=1&where=a=2",
    "where=a:=1e999", "where=a:=" + "[" * 500, "q=a:=[", "q=source:a%20source:b", "q=state:x", "q=%22", "q=%5C",
    "q=uuid:%00", "source=%00", "tag=%00", "flow=%00", "uuid=%00", "group=%00", "error=%00", "app=other%00",
    "source=%ED%A0%80", "counts=maybe", "uuids=" + ",".join("a" * 101),
)  # fmt: skip


async def test_bad_queries_are_no_server_error(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        for query in BAD_QUERIES:
            for path in ("/tasks", "/failures", "/overview", "/schedule-plan"):
                answer = await site.operator.get(f"{path}?{query}")
                assert answer.status < 500, (query, answer)
                if answer.status >= 400:
                    error = answer.json()["error"]
                    assert error["code"] in ("bad_request", "invalid", "forbidden", "not_found"), error
                    assert error["message"]


HOSTILE_NAMES = (
    "%00",
    "a%0Ab",
    "..%2F..%2Fetc",
    "%F0%9F%92%A9",
    "x" * 300,
    "%ED%A0%80",
    "a%2Fb",
    "%27%22<script>",
    "*",
    "%25",
    "@x",
)


async def test_hostile_paths_are_no_server_error(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        client = site.operator.at("")
        for route in ROUTES:
            if route.media_type == "text/event-stream":  # it has no name in its path, and does not end
                continue
            for name in HOSTILE_NAMES:
                site.clock.advance(1000)
                path = path_of(route).replace("/x", f"/{name}")
                body = None if route.method == "GET" else {}
                answer = await client.send(route.method, path, body)
                assert answer.status < 500, (route.method, path, answer)
                if name == "a%0Ab" and path.startswith("/api/") and answer.status >= 400:
                    assert answer.json()["error"]["code"], (route.method, path, answer)


HOSTILE_BODIES = (
    b"", b"{", b"[]", b"null", b'"x"', b'{"a": 1}', b"\xff\xfe", b'{"token": 1}', b'{"token": "\\ud800"}', b"1e999",
)  # fmt: skip


async def test_hostile_bodies_are_no_server_error(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        client = site.operator.at("")
        for route in ROUTES:
            if route.body is None:
                continue
            for body in HOSTILE_BODIES:
                site.clock.advance(60_000)
                for kind in ("application/json", "text/plain", "application/json; charset=latin-1", ""):
                    answer = await client.send(route.method, path_of(route), body, {"Content-Type": kind})
                    assert answer.status < 500, (route.method, route.path, body, answer)


async def test_raw_nonsense_closes_the_connection_and_not_the_server(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        for data in (b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
            writer.write(data)
            assert (await reader.read()).startswith((b"HTTP/1.1 400", b""))
            writer.close()
            await writer.wait_closed()
        assert (await site.operator.get("/status")).status == 200


def test_public_address_needs_a_token_and_tls() -> None:
    token = (token_credential("ana", "operator", OPERATOR_TOKEN),)
    for refused in (
        WebSettings(host="0.0.0.0"),
        WebSettings(host="0.0.0.0", credentials=token),
        WebSettings(host="0.0.0.0", credentials=token, public_url="http://ops.example.com"),
    ):
        with pytest.raises(DeclarationError):
            refused.check_bind()
    WebSettings(host="127.0.0.1").check_bind()
    WebSettings(host="::1").check_bind()
    WebSettings(host="0.0.0.0", credentials=token, insecure=True).check_bind()
    WebSettings(host="0.0.0.0", credentials=token, public_url="https://ops.example.com").check_bind()
