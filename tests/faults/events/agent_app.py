"""Agents that kill their own worker at chosen points. As a program: as many workers as the argument gives.

The environment variables STORE, BUS, APP, TOPIC and RUN_LOG name where all of it is, DATABASE a database for effects.
The header `stops` of an event names the point at which its run kills the worker; "always" does so in every run.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from onthedot import App, current_task
from onthedot.events import Event, Events
from tests.acceptance.row_e.event_systems import REQUESTED
from tests.faults.kill_points import kill_once
from tests.faults.run_log import RunLog
from tests.faults.worker_processes import run_forked

SLOTS = int(os.environ.get("SLOTS", "1"))
app = App(
    os.environ.get("APP", "genesis"),
    store=os.environ.get("STORE", "memory://"),
    events=Events(bus=os.environ.get("BUS", "store"), topics={"Genesis.Session.*": os.environ.get("TOPIC", "genesis")}),
    concurrency=SLOTS,
    stop_timeout=5,
)


def log(point: str) -> None:
    """begin: of a run. end: the effect of `mailer`."""
    run_log = RunLog(Path(os.environ["RUN_LOG"]))
    context = current_task()
    run_log.write(point, context.uuid, context.attempt, context.fence)
    run_log.close()


def stop_at(point: str, event: Event[Any]) -> None:
    stops = event.headers.get("stops")
    if stops == point:
        kill_once(point)
    if stops == "always":
        os.kill(os.getpid(), signal.SIGKILL)


@app.agent("mailer", consumes=(REQUESTED,))
async def mailer(event: Event[Any]) -> None:
    """Its effect is outside of any transaction."""
    log("begin")
    stop_at("process", event)
    log("end")
    stop_at("effect", event)


if "DATABASE" in os.environ:

    @app.agent("seller", consumes=(REQUESTED,))
    async def seller(event: Event[Any]) -> None:
        """Its effect and its end are one transaction."""
        log("begin")
        stop_at("process", event)
        if os.environ["DATABASE"].startswith("sqlite"):
            await sell_in_file(event)
        else:
            await sell_on_server(event)
        stop_at("commit", event)


async def sell_in_file(event: Event[Any]) -> None:
    path = os.environ["DATABASE"].removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO agent_sale VALUES (?)", (event.payload["number"],))
        stop_at("effect", event)
        await current_task().complete(connection=connection)
        stop_at("complete", event)
        connection.execute("COMMIT")


async def sell_on_server(event: Event[Any]) -> None:
    import asyncpg

    connection = await asyncpg.connect(os.environ["DATABASE"])
    try:
        async with connection.transaction():
            await connection.execute("INSERT INTO agent_sale VALUES ($1)", event.payload["number"])
            stop_at("effect", event)
            await current_task().complete(connection=connection)
            stop_at("complete", event)
    finally:
        await connection.close()


if __name__ == "__main__":
    run_forked(int(sys.argv[1]), app.run)
