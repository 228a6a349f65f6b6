"""Requests that schemathesis makes from the description: no defect of the server, and answers as described.

The short form has a few requests per route; ``ONTHEDOT_FAULTS=long`` has hundreds, on every store.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onthedot import App, BatchPolicy, Reject, SizeTable, current_task, group
from onthedot.events import Event
from tests.faults import LONG
from tests.support.app_stores import AppStore
from tests.support.described_answers import FILE
from tests.support.services.programs import Missing, give_up
from tests.support.services.schemathesis_environment import environment
from tests.support.waits import until
from tests.support.web_site import OPERATOR_TOKEN, WebSite, web_site
from tests.unit.web.conftest import new_shop

EXAMPLES = "300" if LONG else "2"
PHASES = "examples,coverage,fuzzing" if LONG else "fuzzing"
PATIENCE = 3600.0 if LONG else 300.0
pytestmark = [pytest.mark.once, pytest.mark.timeout(PATIENCE + 60)]
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance",
)  # fmt: skip
# A frozen source refuses tasks with 503; other errors of the server are ERROR lines of the log.
SETTINGS = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "4xx", 503]
"""


def fill(app: App[Any]) -> Any:
    """Declare what has tasks in every state, and return the function that adds them."""

    @app.task(batch=BatchPolicy(split=SizeTable({}, other=2)))
    async def names(count: int) -> list[str]:
        return [f"n{number}" for number in range(count)]

    @app.task
    async def words(text: str) -> AsyncIterator[str]:
        for word in text.split():
            yield word

    @app.task
    async def approve(order: int) -> object:
        return await current_task().wait_for("approved", timeout=86_400)

    @app.task
    async def add_up(found: list[str]) -> int:
        return len(found)

    @app.agent("packer", consumes="Shop.Order.Placed")
    async def pack(event: Event[Any]) -> None:
        raise Reject("sold out")

    async def add() -> None:
        send = app.named("send")
        await send.enqueue(to="ann", password="hunter2", order={"id": 17})
        await send.options(tags=["eu"], label="to bob").enqueue(to="bob")
        await send.options(after=3600, unique="order-1").enqueue(to="cy")
        await words.enqueue("to be")
        await approve.enqueue(17)
        await app.batch(names, count=6)
        await (group(send.s(to=to) for to in ("ann", "bob")) | add_up).enqueue()
        await app.signal("other", {"by": "ana"})
        await app.publish(Event("Shop.Order.Placed", {"id": 1}, aggregate_id="1", id="order-1"))
        await until(lambda: has_settled(app))

    return add


async def has_settled(app: App[Any]) -> bool:
    tasks = await app.operations.find(limit=200)
    return len(tasks) >= 10 and not any(task.state.value in ("ready", "running") for task in tasks)


async def known_values(site: WebSite) -> dict[str, list[str]]:
    """Values of path parameters that the store has."""
    tasks = (await site.viewer.json("/tasks?limit=200"))["items"]
    names = [row["name"] for path in ("/sources", "/schedules") for row in (await site.viewer.json(path))["items"]]
    ids = [row["id"] for path in ("/flows", "/batches", "/workers") for row in (await site.viewer.json(path))["items"]]
    for path in ("/outbox/events", "/dlt"):
        answer = await site.viewer.get(path)
        if answer.status == 200:
            ids += [row["id"] for row in answer.json()["items"]]
    return {"uuid": [task["uuid"] for task in tasks], "name": [*names, "approved", "other"], "id": ids}


def with_values(described: dict[str, Any], known: dict[str, list[str]]) -> dict[str, Any]:
    """The description; half of the generated path parameters are values that the store has."""
    for path in described["paths"].values():
        for operation in path.values():
            for parameter in operation["parameters"]:
                values = known.get(parameter["name"]) if parameter["in"] == "path" else None
                if values:
                    parameter["schema"] = {"anyOf": [{"enum": values}, parameter["schema"]]}
    return described


@asynccontextmanager
async def passing_time(site: WebSite) -> AsyncIterator[None]:
    """Changes are not counted for longer than an instant: their rate is the subject of another test."""

    async def advance() -> None:
        while True:
            site.clock.advance(60_000)
            await asyncio.sleep(0.005)

    passing = asyncio.create_task(advance())
    try:
        yield
    finally:
        passing.cancel()


async def run_schemathesis(site: WebSite, folder: Path, *options: str) -> tuple[int, str]:
    try:
        python = await asyncio.to_thread(environment)
    except Missing as missing:
        give_up(missing)
    described = with_values(json.loads(FILE.read_text("utf-8")), await known_values(site))
    (folder / "openapi.json").write_text(json.dumps(described))
    (folder / "schemathesis.toml").write_text(SETTINGS)
    command = [
        str(python), "-m", "schemathesis.cli", "run", "openapi.json", "--url", f"http://127.0.0.1:{site.port}",
        "--header", f"Authorization: Bearer {OPERATOR_TOKEN}", "--checks", ",".join(CHECKS),
        "--exclude-path", "/api/v1/changes", "--phases", PHASES, "--max-examples", EXAMPLES,
        "--seed", "17", "--continue-on-failure", "--request-timeout", "30",
        "--suppress-health-check", "all", "--warnings", "off", "--generation-database", "none", "--no-color",
        *options,
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def check(app: App[Any], folder: Path, caplog: pytest.LogCaptureFixture, add: Any, *options: str) -> None:
    async with app.running(), web_site(app) as site:
        await add()
        async with passing_time(site):
            code, report = await run_schemathesis(site, folder, *options)
        assert code == 0, report
        assert (await site.viewer.get("/status")).status == 200
    defects = [record for record in caplog.records if record.name == "onthedot.web" and record.levelname == "ERROR"]
    assert [record.getMessage() for record in defects] == []


@pytest.mark.long
async def test_empty_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def add() -> None:
        """Nothing; the short form changes nothing either."""

    reads = () if LONG else ("--include-method", "GET")
    await check(new_shop(AppStore("shop", "memory://")), tmp_path, caplog, add, *reads)


@pytest.mark.long
async def test_full_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = new_shop(AppStore("shop", "memory://"))
    await check(app, tmp_path, caplog, fill(app))


@pytest.mark.long
@pytest.mark.skipif(not LONG, reason="ONTHEDOT_FAULTS=long")
async def test_every_store(app_store: AppStore, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = new_shop(app_store)
    await check(app, tmp_path, caplog, fill(app))
