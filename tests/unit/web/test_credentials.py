"""Rights to call a route: every route and method, with every kind of credential."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from onthedot import App
from onthedot.web.endpoints import Route
from onthedot.web.routes import ROUTES
from onthedot.web.settings import User
from tests.support.web_client import WebClient
from tests.support.web_site import OPERATOR_TOKEN, VIEWER_TOKEN, WebSite, web_site

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
OPEN = {("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/api/v1/session")}


def path_of(route: Route) -> str:
    return re.sub(r"\{[^}]*\}", "x", route.full_path)


def test_open_routes_are_exactly_these() -> None:
    assert {(route.method, route.full_path) for route in ROUTES if route.access == "open"} == OPEN


def test_every_change_needs_an_operator() -> None:
    changes = [route for route in ROUTES if route.method != "GET" and not route.path.startswith("/session")]
    assert [route.full_path for route in changes if route.access != "operator"] == []


async def test_nothing_is_answered_without_credentials(shop: App[Any]) -> None:
    paths = sorted({path_of(route) for route in ROUTES} | {"/metrics", "/api/v1/nothing", "/api"})
    async with shop, web_site(shop) as site:
        nobody = site.nobody.at("")
        for path in paths:
            for method in METHODS:
                is_open = ("GET" if method == "HEAD" else method, path) in OPEN
                answer = await nobody.send(method, path)
                if is_open:
                    assert answer.status != 401 or path.endswith("/session")
                else:
                    assert answer.status == 401, (method, path)
                    assert method == "HEAD" or answer.json()["error"]["code"] == "unauthorized"


def wrong_clients(site: WebSite) -> dict[str, WebClient]:
    name = site.cookie_name
    good = site.cookie("ana").removeprefix(f"{name}=")
    user, role, expiry, signature = good.split(".")
    site.clock.advance(-13 * 3600 * 1000)
    old = site.cookie("ana")
    site.clock.advance(13 * 3600 * 1000)
    forged = {
        "signature": f"{user}.{role}.{expiry}.{'0' * 64}",
        "role": f"ben.operator.{expiry}.{signature}",
        "expiry": f"{user}.{role}.{int(expiry) + 1}.{signature}",
        "parts": "a",
        "empty": "",
        "not a number": f"{user}.{role}.x.{signature}",
        "not ASCII": "ä.ö.ü.ß",
    }
    cookies = {kind: {"Cookie": f"{name}={value}".encode().decode("latin-1")} for kind, value in forged.items()}
    cookies["expired"] = {"Cookie": old}
    cookies["other name"] = {"Cookie": f"onthedot_1={good}"}
    tokens = {
        f"token {value!r}": {"Authorization": value}
        for value in ("Bearer", "Bearer ", f"Bearer {OPERATOR_TOKEN[:-1]}", f"Basic {OPERATOR_TOKEN}", OPERATOR_TOKEN)
    }
    both = {"wrong token, right cookie": {"Authorization": "Bearer x", "Cookie": site.cookie("ana")}}
    return {kind: WebClient(site.port, headers) for kind, headers in {**cookies, **tokens, **both}.items()}


async def test_wrong_expired_and_forged_credentials_are_refused(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        for kind, client in wrong_clients(site).items():
            assert (await client.get("/status")).status == 401, kind
        assert (await site.browser().get("/status")).status == 200


@pytest.mark.parametrize("kind", ["signature", "expired", "wrong token, right cookie"])
async def test_wrong_credentials_are_refused_by_every_route(shop: App[Any], kind: str) -> None:
    paths = sorted({path_of(route) for route in ROUTES} | {"/api/v1/nothing", "/api"})
    assert {"/metrics", "/api/v1/changes"} <= set(paths)
    async with shop, web_site(shop) as site:
        client = wrong_clients(site)[kind].at("")
        for path in paths:
            methods = [method for method in METHODS if ("GET" if method == "HEAD" else method, path) not in OPEN]
            answers = await asyncio.gather(*[client.send(method, path) for method in methods])
            assert [answer.status for answer in answers] == [401] * len(methods), path


async def test_viewer_may_read_and_no_other_method_is_known(shop: App[Any]) -> None:
    known = {(route.method, path_of(route)) for route in ROUTES}
    async with shop, web_site(shop) as site:
        viewer = site.viewer.at("")
        for path in sorted({path for _, path in known} - {"/api/v1/changes"}):  # a stream does not end
            for method in METHODS:
                if ("GET" if method == "HEAD" else method, path) not in known:
                    assert (await viewer.send(method, path)).status == 405, (method, path)
                elif method in ("GET", "HEAD"):
                    assert (await viewer.send(method, path)).status not in (401, 403), (method, path)


async def test_no_answer_and_no_line_of_the_log_has_a_token(
    shop: App[Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []

    async def break_down(*_: object) -> None:
        raise RuntimeError("a defect")

    async with shop.running(), web_site(shop, access_log=True) as site:
        for client in (site.operator.at(""), site.browser().at("")):
            for route in ROUTES:
                if route.path != "/changes":  # a stream does not end
                    body = None if route.body is None else {}
                    shown.append(str(await client.send(route.method, path_of(route), body)))
                    site.clock.advance(1000)
        page = site.operator.at("").with_headers(Accept="text/html")
        paths = ("/", "/tasks", "/login", f"/?token={OPERATOR_TOKEN}", f"/api/v1/status?token={OPERATOR_TOKEN}")
        shown += [str(await page.get(path)) for path in paths]
        shown.append(str(await site.nobody.post("/session", {"token": OPERATOR_TOKEN})))
        shown.append(str(await site.nobody.post("/session", {"tokens": OPERATOR_TOKEN})))
        monkeypatch.setattr(shop.runtime.store, "find", break_down)
        answer = await site.operator.get("/tasks?state=failed", Referer=f"http://x/?token={OPERATOR_TOKEN}")
        assert answer.status == 500
        shown.append(str(answer))
    assert "a defect" in caplog.text
    assert [text for text in (*shown, caplog.text) if OPERATOR_TOKEN in text or VIEWER_TOKEN in text] == []


async def test_cookie_is_void_when_a_token_a_name_or_a_role_changes(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        cookie = site.cookie("ana").partition("=")[2]
    from onthedot.web.settings import token_credential

    for changed in (
        token_credential("ana", "operator", OPERATOR_TOKEN + "x"),
        token_credential("ana", "viewer", OPERATOR_TOKEN),
        token_credential("eve", "operator", OPERATOR_TOKEN),
    ):
        async with shop, web_site(shop, credentials=(changed,)) as site:
            client = WebClient(site.port, {"Cookie": f"{site.cookie_name}={cookie}"})
            assert (await client.get("/status")).status == 401


async def test_viewer_reads_and_changes_nothing(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        for route in ROUTES:
            if route.access == "operator":
                for client in (site.viewer.at(""), site.browser("ben").at("")):
                    answer = await client.send(route.method, path_of(route), {})
                    assert (answer.status, answer.json()["error"]["code"]) == (403, "forbidden"), route.full_path
        for path in ("/status", "/tasks", "/sources", "/openapi.json"):
            assert (await site.viewer.get(path)).status == 200


async def test_read_only_makes_operators_viewers(shop: App[Any]) -> None:
    async with shop, web_site(shop, read_only=True) as site:
        assert (await site.operator.json("/status"))["role"] == "viewer"


@pytest.mark.parametrize(
    "missing",
    [
        {"X_Onthedot": None},
        {"Origin": None},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"X_Onthedot": "0"},
    ],
)
async def test_change_with_a_cookie_from_another_site_is_refused(shop: App[Any], missing: dict[str, Any]) -> None:
    async with shop, web_site(shop) as site:
        changes = [route for route in ROUTES if route.method != "GET" and route.access != "open"]
        client = site.browser().at("").with_headers(**missing)
        for route in changes:
            answer = await client.send(route.method, path_of(route), {})
            assert (answer.status, answer.json()["error"]["code"]) == (403, "forbidden"), route.full_path


async def test_form_post_of_another_site_is_refused(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = await site.nobody.send("POST", "/session", f"token={OPERATOR_TOKEN}".encode(), form)
        assert answer.status == 415
        answer = await site.nobody.post("/session", {"token": OPERATOR_TOKEN}, Origin="http://evil.example")
        assert answer.status == 403
        assert "set-cookie" not in answer.headers


async def test_sec_fetch_site_stands_in_for_a_missing_origin(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        client = site.browser().with_headers(Origin=None, Sec_Fetch_Site="same-origin")
        assert (await client.send("DELETE", "/session")).status == 204
        client = site.browser().with_headers(Origin=None, Sec_Fetch_Site="cross-site")
        assert (await client.send("DELETE", "/session")).status == 403


async def test_token_is_exchanged_for_a_cookie_and_the_cookie_is_cleared(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        answer = await site.nobody.post("/session", {"token": VIEWER_TOKEN})
        assert answer.status == 204
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{site.cookie_name}=ben.viewer.")
        assert {"HttpOnly", "Path=/", "SameSite=lax"} <= {part.strip() for part in cookie.split(";")}
        client = site.browser().with_headers(Cookie=cookie.partition(";")[0])
        assert (await client.json("/status"))["user"] == "ben"
        answer = await client.send("DELETE", "/session")
        assert (answer.status, "Max-Age=0" in answer.headers["set-cookie"]) == (204, True)


async def test_cookie_in_use_is_renewed(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        client = site.browser()
        assert "set-cookie" not in (await client.get("/status")).headers
        site.clock.advance(2 * 3600 * 1000)
        renewed = (await client.get("/status")).headers["set-cookie"]
        site.clock.advance(11 * 3600 * 1000)
        assert (await client.get("/status")).status == 401
        assert (await client.with_headers(Cookie=renewed.partition(";")[0]).get("/status")).status == 200


@pytest.mark.parametrize("path", ["//evil.example/", "/\\\\evil.example/", "///evil.example/", "/%2Fevil.example/"])
async def test_token_in_a_link_leads_to_this_site_only(shop: App[Any], path: str) -> None:
    async with shop, web_site(shop) as site:
        answer = await site.nobody.at("").get(f"{path}?token={OPERATOR_TOKEN}", accept="text/html")
        assert answer.status == 303
        assert answer.headers["location"] == "/evil.example"  # a slash at the end is dropped from every path


async def test_wrong_tokens_are_counted_by_address(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        statuses = [(await site.nobody.post("/session", {"token": "wrong"})).status for _ in range(6)]
        assert statuses == [401] * 5 + [429]
        assert (await site.nobody.post("/session", {"token": OPERATOR_TOKEN})).status == 429
        site.clock.advance(60_000)
        assert (await site.nobody.post("/session", {"token": OPERATOR_TOKEN})).status == 204


async def test_bearer_needs_no_origin_and_gets_no_cookie(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        answer = await site.operator.get("/status")
        assert (answer.status, "set-cookie" in answer.headers) == (200, False)
        assert answer.json()["user"] == "ana"


def test_user_names_of_cookies_have_no_dots() -> None:
    from onthedot.errors import DeclarationError
    from onthedot.web.settings import parse_users

    with pytest.raises(DeclarationError):
        parse_users(f"a.b:viewer:{'0' * 64}")
    assert User("ana", "operator").role == "operator"
