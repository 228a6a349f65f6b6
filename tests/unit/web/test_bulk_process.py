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
from tests.faults import scaled
from tests.support.services.ports import free_port
from tests.support.waits import until
from tests.support.web_client import WebClient
from tests.support.web_site import OPERATOR_TOKEN

pytestmark = pytest.mark.once
COUNT = 200
FAILURES = scaled(204, 1204)
RATE = 50.0


async def previewed(client: WebClient, action: str, query: str) -> dict[str, Any]:
    cursor = None
    while True:
        answer = await client.post("/tasks/preview", {"action": action, "q": query, "cursor": cursor})
        found: dict[str, Any] = answer.json()
        cursor = found["cursor"]
        if found["exact"]:
            return found


class WebProcess:
    """``onthedot web`` on the store of the test."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.client = WebClient(port, {"Authorization": f"Bearer {OPERATOR_TOKEN}"})

    async def preview(self, query: str, action: str = "cancel") -> dict[str, Any]:
        """The whole preview: a part takes at most 150 ms."""
        return await previewed(self.client, action, query)

    async def cancel(self, query: str, rate: float = RATE) -> str:
        preview = await self.preview(query)
        return await self._start("cancel", preview, rate)

    async def retry(self, query: str, expected: int) -> str:
        """expected: the number of the preview"""
        preview = await self.preview(query, "retry")
        assert preview["count"] == expected
        return await self._start("retry", preview, RATE)

    async def _start(self, action: str, preview: dict[str, Any], rate: float) -> str:
        body = {"token": preview["token"], "confirm": preview["count"], "rate": rate, "reason": "typo"}
        answer = await self.client.post(f"/tasks/{action}", body)
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


@asynccontextmanager
async def shop_with_failures(folder: Path, count: int) -> AsyncIterator[tuple[App[Any], str]]:
    """All tasks have failed, and no worker is left."""
    url = f"sqlite:///{folder}/shop.db"
    app: App[Any] = App("shop", store=url)

    @app.task
    async def deliver(number: int) -> None:
        raise ValueError(number)

    async with app:
        await deliver.enqueue_many([{"number": number} for number in range(count)])
        async with app.running():
            await until(lambda: has_tally(app, {("deliver", "failed"): count}))
        yield app, url


async def has_tally(app: App[Any], expected: dict[tuple[str, str], int]) -> bool:
    return {key: number for key, number in (await app.runtime.store.tally()).items() if number} == expected


async def retry_times(app: App[Any], cursor: str) -> list[float]:
    """When each task was retried, in seconds, by the store. cursor: of its change feed, before the first one."""
    found: list[float] = []
    while True:
        page = await app.runtime.store.changes(cursor, 500)
        assert not page.gap
        for entry in page.entries:
            found += [entry.at / 1000] * entry.counts.get("deliver", {}).get("ready", 0)
        if not page.entries:
            return found
        cursor = page.cursor


@pytest.mark.long
@pytest.mark.timed
async def test_action_keeps_its_rate_and_stops_within_a_second(tmp_path: Path) -> None:
    """The web server is a process of its own, so that only the action is measured."""
    async with shop_with_failures(tmp_path, FAILURES) as (app, url), web_process(url, tmp_path) as web:
        cursor = (await app.runtime.store.changes("", 1)).cursor
        action = await web.retry("source:deliver state:failed", FAILURES)
        await until(lambda: has_done(web, action, FAILURES * 3 // 4))
        stop_time = time.time()
        await web.client.send("DELETE", f"/bulk-actions/{action}")
        took = await until(lambda: has_stopped(web.client, action))
        times = await retry_times(app, cursor)
        later = [at for at in times if at > times[0] + 0.1]  # the first step is at the start
        rate = len(later) / (times[-1] - times[0])
        print(f"{len(times)} of {FAILURES} tasks, {rate:.1f} per second of {RATE:g}; stopped after {took:.2f} s")
        assert 0.9 * RATE <= rate <= 1.1 * RATE
        assert took <= 1
        assert times[-1] <= stop_time + 1
        assert FAILURES * 3 // 4 <= len(times) < FAILURES
        assert await has_tally(app, {("deliver", "ready"): len(times), ("deliver", "failed"): FAILURES - len(times)})


async def has_stopped(client: WebClient, action: str) -> bool:
    return str((await client.json(f"/bulk-actions/{action}"))["state"]) == "stopped"
