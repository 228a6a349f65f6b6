"""A bulk action in a web process of its own: its rate, its stop, and the death of the process in the middle."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onthedot import App
from tests.support.services.ports import free_port
from tests.support.waits import until
from tests.support.web_client import WebClient
from tests.support.web_site import OPERATOR_TOKEN, web_site

pytestmark = pytest.mark.once
COUNT = 200
RATE = 50.0


async def previewed(client: WebClient, query: str) -> dict[str, Any]:
    cursor = None
    while True:
        answer = await client.post("/tasks/preview", {"action": "cancel", "q": query, "cursor": cursor})
        found: dict[str, Any] = answer.json()
        cursor = found["cursor"]
        if found["exact"]:
            return found


class WebProcess:
    """``onthedot web`` on the store of the test."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.client = WebClient(port, {"Authorization": f"Bearer {OPERATOR_TOKEN}"})

    async def preview(self, query: str) -> dict[str, Any]:
        """The whole preview: a part takes at most 150 ms."""
        return await previewed(self.client, query)

    async def cancel(self, query: str, rate: float = RATE) -> str:
        preview = await self.preview(query)
        body = {"token": preview["token"], "confirm": preview["count"], "rate": rate, "reason": "typo"}
        answer = await self.client.post("/tasks/cancel", body)
        assert answer.status == 202, answer
        return str(answer.json()["id"])

    async def done(self, action: str) -> int:
        return int((await self.client.json(f"/bulk-actions/{action}"))["done"])

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def web_process(url: str, folder: Path) -> AsyncIterator[WebProcess]:
    port = free_port()
    (folder / "token").write_text(OPERATOR_TOKEN)
    command = ["-m", "onthedot", "-n", "shop", "web", "--store", url, "--listen", f":{port}", "--token-file", "token"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while b"page http" not in (line := await process.stdout.readline()):
                assert line, "the process has ended"
        yield WebProcess(process, port)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def shop_with_tasks(folder: Path) -> AsyncIterator[tuple[App[Any], str]]:
    url = f"sqlite:///{folder}/shop.db"
    app: App[Any] = App("shop", store=url)
    async with app:
        send = app.named("send").options(after=3600)
        for number in range(COUNT):
            await send.enqueue(to=f"u{number}")
        yield app, url


async def states(app: App[Any]) -> Counter[str]:
    return Counter([info.state.value for info in await app.operations.find(limit=2 * COUNT)])


async def test_killed_process_leaves_the_rest_and_the_same_action_goes_on_with_it(tmp_path: Path) -> None:
    async with shop_with_tasks(tmp_path) as (app, url):
        async with web_process(url, tmp_path) as web:
            action = await web.cancel("source:send", rate=10)  # slow, so that it is under way when it is killed
            await until(lambda: has_done(web, action, 10))
            await web.kill()
        left = await states(app)
        assert 10 <= left["cancelled"] < COUNT
        assert left["scheduled"] == COUNT - left["cancelled"]
        async with web_process(url, tmp_path) as web:
            assert await states(app) == left, "the rest has changed without a process"
            noted = await web.client.json(f"/bulk-actions/{action}")
            assert (noted["found"], noted["reason"]) == (COUNT, "typo")
            assert 10 <= noted["done"] <= left["cancelled"]
            assert (await web.preview("source:send"))["count"] == left["scheduled"]
            again = await web.cancel("source:send")
            await until(lambda: has_done(web, again, left["scheduled"]))
            assert (await web.client.json(f"/bulk-actions/{again}"))["changed"] == left["scheduled"]
        assert await states(app) == {"cancelled": COUNT}


async def has_done(web: WebProcess, action: str, count: int) -> bool:
    return await web.done(action) >= count


@pytest.mark.timed
async def test_action_keeps_its_rate_and_stops_within_a_second(tmp_path: Path) -> None:
    async with shop_with_tasks(tmp_path) as (app, _), web_site(app) as site:
        preview = await previewed(site.operator, "source:send")
        body = {"token": preview["token"], "confirm": COUNT, "rate": RATE}
        action = (await site.operator.post("/tasks/cancel", body)).json()["id"]
        await until(lambda: has_changed(site.viewer, action, 150))
        stopped = time.monotonic()
        await site.operator.send("DELETE", f"/bulk-actions/{action}")
        await until(lambda: has_stopped(site.viewer, action))
        assert time.monotonic() - stopped <= 1
        ends = sorted([info.ended_at.timestamp() for info in await app.operations.find(limit=COUNT) if info.ended_at])
        later = [end for end in ends if end > ends[0] + 0.1]  # the first step is at the start
        rate = len(later) / (ends[-1] - ends[0])
        print(f"{rate:.1f} tasks per second of {RATE:g}")
        assert 0.9 * RATE <= rate <= 1.1 * RATE
        assert len(ends) < COUNT


async def has_changed(client: WebClient, action: str, count: int) -> bool:
    return int((await client.json(f"/bulk-actions/{action}"))["done"]) >= count


async def has_stopped(client: WebClient, action: str) -> bool:
    return str((await client.json(f"/bulk-actions/{action}"))["state"]) == "stopped"
