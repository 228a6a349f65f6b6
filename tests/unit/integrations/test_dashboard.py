"""``dashboard``: the page inside another program, below a path, with a token or with the users of that program."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount

from onthedot import App
from onthedot.integrations.fastapi import User, anyone, dashboard, lifespan
from onthedot.web.routes import ROUTES
from tests.support.web_client import WebClient
from tests.support.web_server import serving

PREFIX = "/ops/tasks"
TOKEN = "operator-token-0123456789"
VIEWER_TOKEN = "viewer-token-0123456789"
HTML = {"Accept": "text/html"}


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONTHEDOT_WEB_TOKEN", TOKEN)
    monkeypatch.setenv("ONTHEDOT_WEB_VIEWER_TOKEN", VIEWER_TOKEN)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def mounted(app: App[Any], **options: Any) -> AsyncIterator[WebClient]:
    """A client without credentials."""
    api = FastAPI(lifespan=lifespan(app))
    api.mount(PREFIX, dashboard(app, **options))
    async with serving(api) as server:
        yield WebClient(server.port, {}, PREFIX)


async def test_mounted_routes_need_credentials_of_the_right_role(app: App, tokens: None) -> None:
    async with mounted(app) as nobody:
        for route in ROUTES:
            path = re.sub(r"\{[^}]*\}", "x", route.full_path)
            answer = await nobody.send(route.method, path, {})
            wrong = await nobody.send(route.method, path, {}, bearer("a-token-that-is-wrong"))
            if route.access == "open":
                assert path.endswith("/session") or answer.status == 200, path
                continue
            assert (answer.status, wrong.status) == (401, 401), path
            if route.access == "operator":
                viewer = await nobody.send(route.method, path, {}, bearer(VIEWER_TOKEN))
                assert viewer.status == 403, path
        for token, role in ((TOKEN, "operator"), (VIEWER_TOKEN, "viewer")):
            status = (await nobody.send("GET", "/api/v1/status", headers=bearer(token))).json()
            assert (status["app"], status["role"]) == ("shop", role)


async def test_every_address_of_a_mounted_page_is_below_its_path(app: App, tokens: None) -> None:
    async with mounted(app) as nobody:
        answer = await nobody.send("GET", "/tasks", headers=HTML)
        assert (answer.status, answer.headers["location"]) == (303, f"{PREFIX}/login")
        answer = await nobody.send("GET", f"/?token={TOKEN}", headers=HTML)
        assert (answer.status, answer.headers["location"]) == (303, f"{PREFIX}/")
        cookie, *attributes = answer.headers["set-cookie"].split("; ")
        assert f"Path={PREFIX}" in attributes
        page = (await nobody.send("GET", "/", headers={**HTML, "Cookie": cookie})).body.decode()
        links = re.findall(r'(?:data-base|href|src)="([^"]*)"', page)
        assert len(links) == 4
        assert all(link.startswith(f"{PREFIX}/") and "//" not in link for link in links)
        for link in links[1:]:
            assert (await nobody.at("").get(link)).status == 200


async def test_prefix_is_named_for_frameworks_that_do_not_pass_it_on(app: App, tokens: None) -> None:
    page = dashboard(app, prefix=PREFIX)

    async def framework(scope: Any, receive: Any, send: Any) -> None:
        """As Litestar does."""
        path = scope["path"].removeprefix(PREFIX).rstrip("/") + "/"
        await page({**scope, "path": path, "root_path": ""}, receive, send)

    async with app, serving(framework, lifespan="off") as server:
        client = WebClient(server.port, {**HTML, **bearer(TOKEN)}, PREFIX)
        answer = await client.with_headers(Authorization=None).get("/tasks")
        assert (answer.status, answer.headers["location"]) == (303, f"{PREFIX}/login")
        for path in ("", "/", "/tasks", "/tasks/", "/api/v1/status"):
            assert (await client.get(path)).status == 200, path


def named(request: Request) -> User | None:
    name = request.headers.get("x-user", "")
    if name == "nobody":
        return None
    if not name:
        raise HTTPException(303, "sign in", {"Location": "/sign-in"})
    if name == "wrong":
        return (name, "admin")  # type: ignore[return-value]
    return User(name, "operator" if name == "ana" else "viewer")


async def named_later(request: Request) -> User | None:
    return named(request)


@pytest.mark.parametrize("function", [named, named_later])
async def test_host_program_names_its_users(
    app: App, function: Callable[[Request], User | Awaitable[User | None] | None], caplog: pytest.LogCaptureFixture
) -> None:
    async with mounted(app, user=function) as client:

        async def status_of(user: str, method: str = "GET", path: str = "/api/v1/status", **headers: str) -> int:
            return (await client.send(method, path, {}, {"X-User": user, **headers})).status

        pause = ("POST", "/api/v1/schedules/x/pause")
        own = {"X-Onthedot": "1", "Origin": f"http://127.0.0.1:{client.port}"}
        assert await status_of("ana") == 200
        assert await status_of("ana", *pause) == 403, "another site may have sent it"
        assert await status_of("ana", *pause, **own) == 404
        assert await status_of("ben", *pause, **own) == 403
        assert await status_of("nobody") == 401
        assert await status_of("nobody", "GET", "/") == 401
        answer = await client.send("GET", "/", headers=HTML)
        assert (answer.status, answer.headers["location"]) == (303, "/sign-in")
        assert await status_of("ana", "POST", "/api/v1/session", **own) != 204
        assert await status_of("wrong") == 500
    assert "user= of dashboard() returned ('wrong', 'admin')" in caplog.text


async def test_anyone_is_a_viewer_if_it_is_written(app: App) -> None:
    async with mounted(app, user=anyone) as client:
        status = (await client.send("GET", "/api/v1/status")).json()
        assert (status["user"], status["role"]) == ("anyone", "viewer")


async def test_page_of_an_app_that_is_not_open_names_the_missing_line(app: App) -> None:
    api = FastAPI()
    api.mount(PREFIX, dashboard(app, user=anyone))
    async with serving(api) as server:
        client = WebClient(server.port, {}, PREFIX)
        page = await client.send("GET", "/tasks", headers=HTML)
        assert (page.status, b"lifespan=lifespan(app)" in page.body) == (503, True)
        answer = await client.send("GET", "/api/v1/status")
        assert (answer.status, answer.json()["error"]["code"]) == (503, "not_open")
        assert "lifespan=lifespan(app)" in answer.json()["error"]["message"]


async def test_redacted_values_are_shown_nowhere(app: App, send: Any) -> None:
    def hide(path: str, value: object) -> object:
        return "(hidden)" if path == "to" else value

    async with mounted(app, user=anyone, redact=hide) as client:
        handle = await send.enqueue("DE02 1203")
        answer = await client.send("GET", f"/api/v1/tasks/{handle.uuid}")
        assert answer.json()["args"] == {"to": "(hidden)"}
        assert b"DE02" not in answer.body


async def test_page_works_behind_a_middleware_of_the_host(app: App, send: Any) -> None:
    async def passing(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    api = Starlette(
        routes=[Mount(PREFIX, dashboard(app, user=anyone))],
        lifespan=lifespan(app),
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=passing)],
    )
    async with serving(api) as server:
        await send.enqueue("ann")
        answer = await WebClient(server.port, {}, PREFIX).send("GET", "/api/v1/tasks")
        assert [task["source"] for task in answer.json()["items"]] == ["send"]


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where tokens are saved; none is set."""
    for name in ("ONTHEDOT_WEB_TOKEN", "ONTHEDOT_WEB_VIEWER_TOKEN", "ONTHEDOT_WEB_USERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def blocked_state(state: Path) -> Path:
    """A place where nothing can be written."""
    state.write_text("a file")
    return state


def saved_tokens(state: Path) -> dict[str, str]:
    """By file."""
    return {str(file): file.read_text().strip() for file in state.rglob("*.token")}


async def test_token_is_made_at_the_first_request_and_its_file_logged_with_an_address_that_no_client_chose(
    app: App, caplog: pytest.LogCaptureFixture, state: Path
) -> None:
    caplog.set_level(logging.WARNING, "onthedot.web")
    async with mounted(app) as client:
        assert saved_tokens(state) == {}, "an import makes no file"
        await client.send("GET", "/", headers={**HTML, "Host": "evil.example"})
        await client.send("GET", "/", headers=HTML)
        (line,) = [each for each in caplog.messages if each.startswith("[page]")]
        address, _, file = line.partition("sign in at ")[2].partition(" with the token in ")
        assert address == f"http://127.0.0.1:{client.port}{PREFIX}/"
        token = saved_tokens(state)[file]
        assert token not in caplog.text
        assert (await client.send("GET", "/api/v1/status", headers=bearer(token))).status == 200


async def test_page_without_a_place_for_its_token_says_so_once(
    app: App, caplog: pytest.LogCaptureFixture, blocked_state: Path
) -> None:
    async with mounted(app) as client:
        assert (await client.send("GET", "/api/v1/status")).status == 401
        assert (await client.send("GET", "/api/v1/status")).status == 401
    (line,) = [each for each in caplog.messages if each.startswith("[page]")]
    assert line == "[page] nobody can sign in: no token can be saved; set ONTHEDOT_WEB_TOKEN or user="
