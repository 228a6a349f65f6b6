"""An API under uvicorn, as users start it, with several processes, reloads and stops."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from onthedot.cli import main
from tests.support.http_client import request
from tests.support.process_guard import start_guarded
from tests.support.services.ports import free_port
from tests.support.sse_client import connect, read_over_disconnects
from tests.support.waits import SOON, wait_until

pytestmark = pytest.mark.once

PARTS = 60
AT_ONCE = 4  # as in the program
CUTS = 20
PROGRAM = """
import asyncio, os
from datetime import timedelta
from pathlib import Path
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry
from onthedot import App, BatchPolicy, current_task
from onthedot.integrations.fastapi import accepted, lifespan, sse, status
from onthedot.integrations.prometheus import Collector
from onthedot.operations.fleet_metrics import FleetMetrics

tasks = App("shop", store="sqlite:///shop.db", stop_timeout=0, concurrency=4)
registry = CollectorRegistry()
registry.register(Collector(tasks))


@tasks.task(batch=BatchPolicy(split=lambda kind, count: [1] * count, at_once=4))
async def names(count: int) -> list[str]:
    await asyncio.sleep(0.02)
    return [current_task().metadata["subtask_id"].rpartition(":")[2]]


@tasks.task
async def long() -> None:
    await asyncio.sleep(1000)


@tasks.task
async def process() -> int:
    await asyncio.sleep(0.05)
    return os.getpid()


@tasks.schedule(timedelta(milliseconds=200))
async def tick() -> None:
    with Path("ticks").open("a") as file:
        file.write(f"{current_task().scheduled_for.isoformat()}\\n")


api = FastAPI(lifespan=lifespan(tasks, run=True))


@api.post("/batches/{count}")
async def create(count: int) -> str:
    return (await tasks.batch(names, count=count)).id


@api.get("/batches/{id}/events")
async def events(id: str, request: Request) -> Response:
    return sse(tasks.batch_handle(id), request)


@api.get("/metrics")
async def metrics() -> dict[str, float]:
    runtime = tasks.runtime
    fleet = await FleetMetrics(runtime.store, runtime.store, runtime.clock, 10).read()
    queued = sum(sample.value for sample in fleet.samples if sample.metric == "batch_queue_size")
    samples = [sample for metric in registry.collect() for sample in metric.samples if "le" not in sample.labels]
    counted = {f"{sample.name} {sample.labels.get('status', '')}".strip(): sample.value for sample in samples}
    return {"batch_queue_size": queued, **counted}


@api.post("/long")
async def start() -> Response:
    return accepted(await long.enqueue(), url="/tasks/{uuid}")


@api.get("/tasks/{uuid}/events")
async def task_events(uuid: str, request: Request) -> Response:
    return sse(tasks.ahandle(uuid), request)


@api.get("/workers")
async def workers() -> dict[str, list[int]]:
    found = await asyncio.gather(*(await process.enqueue_many([()] * 8)))
    return {"ran": sorted(set(found)), "live": [len(await tasks.operations.workers())]}
"""


class Web(NamedTuple):
    process: subprocess.Popen[Any]
    port: int
    folder: Path

    def call(self, method: str, path: str) -> Any:
        return request(self.port, method, path).json()

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def ticks(self) -> list[str]:
        file = self.folder / "ticks"
        return file.read_text().splitlines() if file.exists() else []


@contextmanager
def uvicorn(folder: Path, *options: str) -> Iterator[Web]:
    (folder / "web.py").write_text(PROGRAM)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "web:api", "--port", str(port), "--log-level", "warning", *options]
    with (folder / "log").open("wb") as log:
        process = start_guarded(command, cwd=folder, stderr=log)
    web = Web(process, port, folder)
    try:
        wait_until(lambda: answers(web))
        yield web
        process.send_signal(signal.SIGTERM)
        process.wait(SOON)
        assert errors_in(web) == []
    finally:
        process.kill()
        process.wait()


def errors_in(web: Web) -> list[str]:
    """Warnings are left out: windows of a schedule are missed on a busy machine, and reloads are reported."""
    return [line for line in web.log().splitlines() if re.match("ERROR|Traceback|.*Error:", line)]


def answers(web: Web) -> bool:
    assert web.process.poll() is None, web.log()
    assert errors_in(web) == []
    try:
        return bool(web.call("GET", "/workers"))
    except OSError:
        return False


def test_sse_resumes_twenty_times_and_shows_every_part_once_in_order(tmp_path: Path) -> None:
    with uvicorn(tmp_path, "--workers", "2") as web:
        batch = web.call("POST", f"/batches/{PARTS}")
        events = asyncio.run(read_over_disconnects(web.port, f"/batches/{batch}/events", CUTS, "part"))
    parts = [event.data for event in events if event.kind == "part"]
    assert [part["number"] for part in parts] == list(range(1, PARTS + 1))
    assert sorted(int(item) for part in parts for item in part["items"]) == list(range(PARTS))
    assert [event.data for event in events if event.kind == "end"] == ["succeeded"]
    progress = [event.data["done"] for event in events if event.kind == "progress"]
    assert progress == sorted(progress)
    assert progress[-1] == PARTS


def test_metrics_of_batches_agree_with_the_parts_that_were_seen(tmp_path: Path) -> None:

    def command(*words: str) -> None:
        result = CliRunner().invoke(main, ["source", *words, "--store", f"sqlite:///{tmp_path}/shop.db"])
        assert result.exit_code == 0, result.output

    with uvicorn(tmp_path) as web:
        command("pause", "names", "--reason", "in a test")
        batch = web.call("POST", f"/batches/{PARTS}")
        wait_until(lambda: web.call("GET", "/metrics")["batch_queue_size"] == AT_ONCE)
        command("resume", "names")
        events = asyncio.run(read_over_disconnects(web.port, f"/batches/{batch}/events", 2, "part"))
        wait_until(lambda: web.call("GET", "/metrics").get("batch_tasks_total succeeded") == PARTS)
        figures = web.call("GET", "/metrics")
    assert sum(event.kind == "part" for event in events) == PARTS
    assert figures["batch_task_duration_seconds_count"] == PARTS
    assert figures["batch_first_response_seconds_count"] == 1
    assert figures["batch_queue_size"] == 0


def test_two_server_processes_run_tasks_and_fire_each_window_once(tmp_path: Path) -> None:
    with uvicorn(tmp_path, "--workers", "2") as web:
        wait_until(lambda: web.call("GET", "/workers")["live"] == [2])
        wait_until(lambda: len(web.call("GET", "/workers")["ran"]) == 2)
        seen = len(web.ticks())
        wait_until(lambda: len(web.ticks()) >= seen + 5)
    ticks = web.ticks()
    assert len(ticks) == len(set(ticks))


def test_changed_code_reloads_the_process_that_runs_tasks(tmp_path: Path) -> None:
    with uvicorn(tmp_path, "--reload") as web:
        (first,) = web.call("GET", "/workers")["ran"]
        (tmp_path / "web.py").write_text(PROGRAM.replace("concurrency=4", "concurrency=5"))
        os.utime(tmp_path / "web.py", (4e9, 4e9))  # the reloader compares times
        wait_until(lambda: answers(web) and web.call("GET", "/workers")["ran"] != [first])
        assert web.call("GET", "/workers")["live"] == [1]
    ticks = web.ticks()
    assert len(ticks) == len(set(ticks))


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one", "two"])
def test_server_with_open_streams_stops(tmp_path: Path, options: tuple[str, ...]) -> None:
    async def stop_while_reading(web: Web) -> list[str]:
        path = web.call("POST", "/long")["url"]
        async with connect(web.port, f"{path}/events") as connection:
            events = connection.events()
            first = await anext(events)
            web.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(SOON):
                rest = [event.kind async for event in events]
        return [first.kind, *rest]

    with uvicorn(tmp_path, *options) as web:
        kinds = asyncio.run(stop_while_reading(web))
        assert web.process.wait(SOON) in (0, -signal.SIGTERM)
    assert "end" not in kinds, "the task has not ended"
