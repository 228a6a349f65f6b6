"""Differences between stores, found by trying them: this prints the table of docs/stores.md.

python -m tests.unit.stores.differences
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from click.testing import CliRunner

from onthedot import App, StoreRefused
from onthedot.cli import main as command_line
from onthedot.clock.system import SystemClock
from onthedot.errors import ArgumentError
from onthedot.events import Event
from onthedot.stores import connect
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import NewTask, Store
from onthedot.stores.schemes import rights_text
from tests.support.waits import until

KINDS = ("memory", "sqlite", "redis", "postgresql")
PAGE = Path(__file__).parents[3] / "docs" / "stores.md"
APP = "differences"
HOUR = 3_600_000  # ms
HEAD = "| what | " + " | ".join(f"`{kind}`" for kind in KINDS) + " |"


@dataclass(frozen=True)
class Tried:
    """A store of one kind: open, and in an app that has nothing else in it."""

    app: App
    store: Store
    url: str


Look: TypeAlias = Callable[[Tried], Awaitable[str]]
ROWS: dict[str, Look] = {}


def row(title: str) -> Callable[[Look], Look]:
    def keep(look: Look) -> Look:
        ROWS[title] = look
        return look

    return keep


@row("shared with other processes, and kept after the end of this one")
async def shared(tried: Tried) -> str:
    return "no" if not tried.store.traits.shared else "yes"


@row("a task of a source that no worker here knows")
async def unknown(tried: Tried) -> str:
    """A worker's answer to it; a shared store is read after a task that was added later has run."""

    @tried.app.task
    async def known() -> None: ...

    async with tried.app.running():
        lost = await tried.app.named("nobody").enqueue()
        if not tried.store.traits.shared:
            try:
                await lost.result(timeout=20)
            except Exception as error:
                return f"ends as `failed` at once ({type(error).__name__})"
        await (await known.enqueue()).result(timeout=20)
        return "stays for other workers" if (await lost.info()).state == "ready" else "?"


@row("pending tasks at `App.shutdown()`")
async def shutdown(tried: Tried) -> str:
    def live() -> str:
        with tried.app.background():
            handle = tried.app.named("later").options(after=60).delay()
            tried.app.shutdown()
            return str(handle.state())

    state = await asyncio.to_thread(live)
    return "stays" if state == "scheduled" else f"ends as `{state}`"


@row("`options(connection=…)`, `ctx.complete(connection=…)`")
async def joins(tried: Tried) -> str:
    send = tried.app.named("known").options(connection=object())
    try:
        await asyncio.to_thread(send.delay)
    except StoreRefused as error:
        if "no transaction to join" in str(error):
            return "refused (`StoreRefused`): no transaction to join"
    except ArgumentError:
        pass
    try:
        await send.enqueue()
    except ArgumentError:
        return "joins yours: `delay` through sqlite3, SQLAlchemy"
    except StoreRefused:
        return "joins yours: `delay` and `enqueue` through asyncpg, psycopg, SQLAlchemy"
    return "?"


@row("`app.publish(…)`, agents, resume handles, the store as bus")
async def events(tried: Tried) -> str:
    """A relay of the app sends it; a store without an outbox refuses it."""
    event = Event("Shop.Order.Placed", {}, aggregate_id="17")
    async with tried.app.running():
        try:
            await tried.app.publish(event)
        except StoreRefused as error:
            return (
                "refused (`StoreRefused`); publishing and resume handles work with `Events(outbox=…)`"
                if "Events(outbox=" in str(error)
                else "?"
            )
        outbox = tried.app.runtime.store
        assert isinstance(outbox, Outbox)
        await until(lambda: _is_sent(outbox, event.id))
        return "yes, lost with the process" if not tried.store.traits.shared else "yes"


async def _is_sent(outbox: Outbox, event_id: str) -> bool:
    (stored,) = await outbox.find_events({"id": event_id}, 0, 1)
    return stored.status == "sent"


@row("`publish(connection=…)`, `expect(connection=…)`")
async def joined_events(tried: Tried) -> str:
    event = Event("Shop.Order.Placed", {}, aggregate_id="17")
    try:
        await tried.app.publish(event, connection=object())
    except StoreRefused as error:
        if "no transaction to join" in str(error):
            return "refused (`StoreRefused`): no transaction to join"
        if "joined through asyncpg" in str(error):
            return "joins yours, through asyncpg, psycopg, SQLAlchemy"
    except ArgumentError as error:
        if "write app.sync.publish" in str(error):
            return "joins yours: `app.sync.publish` through sqlite3, SQLAlchemy"
    return "?"


@row("a worker process that dies")
async def death(tried: Tried) -> str:
    if not tried.store.traits.shared:
        return "takes its tasks with it"
    if tried.store.traits.lease_ms is None:
        return "is noticed at once"
    lease = tried.store.traits.lease_ms // 1000
    return f"is noticed by its supervisor at once, by others after the lease ({lease} s, `?lease=`)"


class Ahead(SystemClock):
    """An hour before all others."""

    def now(self) -> float:
        return super().now() + HOUR


@row("due times are compared with")
async def clock(tried: Tried) -> str:
    here = Ahead()
    store = connect(tried.url, here, APP)
    await store.open()
    await store.add([NewTask("now", "known", b"{}")])
    (record,) = await store.get(["now"])
    await store.close()
    assert record is not None
    if here.now() - record.added < HOUR / 2:
        return "the app's clock, which steps of the wall clock do not affect"
    return "the machine's clock" if store.traits.lease_ms is None else "the server's clock"


@row("`onthedot schema print`, `install`, `check`")
async def schema(tried: Tried) -> str:
    printed = CliRunner().invoke(command_line, ["schema", "print", "--store", tried.url])
    return "yes" if printed.exit_code == 0 else "refused: no schema"


@row("`onthedot schema print --role`: a user with minimal rights")
async def roles(tried: Tried) -> str:
    return "refused: no users" if rights_text(tried.url, "shop", "") is None else "yes"


def url_of(kind: str, server: str, folder: str) -> str:
    return {"memory": "memory://", "sqlite": f"sqlite:///{folder}/shop.db"}.get(kind, server)


async def observed(kind: str, server: str = "") -> dict[str, str]:
    """The column of one kind."""
    cells: dict[str, str] = {}
    with TemporaryDirectory(prefix="differences-") as folder:
        url = url_of(kind, server, folder)
        for title, look in ROWS.items():
            app = App(APP, store=url, stop_timeout=0, poll_interval=0.2)
            store = connect(url, app.runtime.clock, APP)
            cells[title] = await look(Tried(app, store, url))
            app.shutdown()
    return cells


def documented() -> dict[str, dict[str, str]]:
    """By kind and row."""
    lines = PAGE.read_text("utf-8").split(HEAD)[1].split("\n\n")[0].splitlines()[2:]
    table: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    for line in lines:
        title, *cells = (cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|"))
        for kind, cell in zip(KINDS, cells, strict=True):
            table[kind][title.replace("¦", "|")] = cell
    return table


def printed(columns: dict[str, dict[str, str]]) -> str:
    rows = [[title.replace("|", "\\|"), *(columns[kind][title] for kind in KINDS)] for title in ROWS]
    return "\n".join([HEAD, "|---" * (len(KINDS) + 1) + "|", *(f"| {' | '.join(cells)} |" for cells in rows)])


def main() -> None:
    from tests.support.services import valkey
    from tests.support.services.postgres import find

    for service in find():
        servers = {"redis": valkey.url(), "postgresql": service.url}
        print(printed({kind: asyncio.run(observed(kind, servers.get(kind, ""))) for kind in KINDS}))
    valkey.forget("onthedot:{differences}:")


if __name__ == "__main__":
    main()
