"""The page in the servers that users start: examples/fastapi_shop under uvicorn, and `onthedot web`."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.http_client import Answer, request
from tests.support.process_guard import start_guarded
from tests.support.services.ports import free_port
from tests.support.waits import SOON, wait_until
from tests.support.web_client import WebClient

pytestmark = pytest.mark.once

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_shop"
PREFIX = "/ops/tasks"
TOKEN = "operator-token-0123456789"
UVICORN = ("uvicorn", "web:api", "--log-level", "warning", "--port")


class Server(NamedTuple):
    process: subprocess.Popen[Any]
    folder: Path
    page: WebClient

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def api(self, path: str) -> Any:
        return asyncio.run(self.page.json(f"/api/v1{path}"))

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.log()
        try:
            return request(self.page.port, "GET", f"{self.page.prefix}/readyz").status == 200
        except OSError:
            return False

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[asyncio.StreamReader]:
        """The changes, as an open tab reads them."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.page.port)
        head = f"GET {self.page.prefix}/api/v1/changes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        writer.write(f"{head}\r\n".encode())
        try:
            async with asyncio.timeout(SOON):
                await reader.readuntil(b"event: hello")
                yield reader
        finally:
            writer.close()
            await writer.wait_closed()


@contextmanager
def serving(folder: Path, *command: str, prefix: str = PREFIX) -> Iterator[Server]:
    """command: without the port, which follows."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    port = free_port()
    environment = {**os.environ, "ONTHEDOT_STORE": f"sqlite:///{folder}/shop.db", "ONTHEDOT_WEB_TOKEN": TOKEN}
    named = f":{port}" if command[0] == "onthedot" else str(port)
    with (folder / "log").open("wb") as log:
        process = start_guarded(
            [sys.executable, "-m", *command, named], cwd=folder, env=environment, stdout=log, stderr=log
        )
    server = Server(process, folder, WebClient(port, {"Authorization": f"Bearer {TOKEN}"}, prefix))
    try:
        wait_until(server.is_up)
        yield server
        process.send_signal(signal.SIGTERM)
        process.wait(SOON)
        assert "Traceback" not in server.log()
    finally:
        process.kill()
        process.wait()


def finish_order(server: Server, number: int) -> dict[str, Any]:
    accepted = request(server.page.port, "POST", f"/orders/{number}").json()

    def answer() -> Answer:
        return request(server.page.port, "GET", accepted["url"])

    wait_until(lambda: answer().json()["state"] == "succeeded")
    found: dict[str, Any] = {**accepted, **answer().json()}
    return found


def test_example_shows_its_tasks_from_each_of_two_processes(tmp_path: Path) -> None:
    with serving(tmp_path, *UVICORN[:-1], "--workers", "2", "--port") as server:
        wait_until(lambda: server.api("/status")["workers"] == 2)
        shipped = finish_order(server, 17)
        assert shipped["result"] == "order 17 is on its way"
        rows = [server.api(f"/tasks?uuid={shipped['uuid']}")["items"] for _ in range(8)]  # connections of both
        assert {(row["label"], row["state"]) for (row,) in rows} == {("order 17", "succeeded")}


def test_open_tab_continues_after_a_reload_of_its_server(tmp_path: Path) -> None:
    async def reload(server: Server) -> None:
        async with server.stream() as before:
            os.utime(tmp_path / "tasks.py", (4e9, 4e9))  # the reloader compares times
            assert b"event: bye" in await before.read(), "the old process waits for no stream"
        await asyncio.to_thread(wait_until, server.is_up)
        async with server.stream():
            pass

    with serving(tmp_path, *UVICORN[:-1], "--reload", "--port") as server:
        asyncio.run(reload(server))
        assert finish_order(server, 3)["state"] == "succeeded"


SERVERS = {
    "one process": UVICORN,
    "two processes": (*UVICORN[:-1], "--workers", "2", "--port"),
    "with reload": (*UVICORN[:-1], "--reload", "--port"),
    "alone": ("onthedot", "-n", "shop", "web", "--listen"),
}


@pytest.mark.timed
@pytest.mark.parametrize("name", SERVERS)
def test_server_with_open_streams_stops_within_a_second(tmp_path: Path, name: str) -> None:
    async def stop(server: Server) -> float:
        async with server.stream(), server.stream(), server.stream():
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(server.process.wait, SOON)
            return time.monotonic() - began

    prefix = PREFIX
    if name == "alone":
        prefix = ""
        subprocess.run(
            [sys.executable, "-m", "onthedot", "worker", "--burst", str(EXAMPLE / "tasks.py")],
            env={**os.environ, "ONTHEDOT_STORE": f"sqlite:///{tmp_path}/shop.db"}, capture_output=True, check=True,
        )  # fmt: skip
    with serving(tmp_path, *SERVERS[name], prefix=prefix) as server:
        seconds = asyncio.run(stop(server))
    print(f"{name}: {seconds:.2f} s")
    assert seconds <= 1
