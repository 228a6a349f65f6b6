"""``onthedot bench``: how fast a store is from this machine, by tasks of an app that exists only meanwhile."""

from __future__ import annotations

import asyncio
import math
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import click
from msgspec import Struct

from onthedot import App
from onthedot.cli.interrupt import stop_event
from onthedot.cli.options import GlobalOptions, shared
from onthedot.cli.output import Screen, screen, write_json
from onthedot.cli.table import Column, number
from onthedot.cli.target import target
from onthedot.cli.worker import require_unix
from onthedot.client.client import StoreClient
from onthedot.stores.masked_url import masked
from onthedot.stores.schemes import file_of, file_url, remove_app
from onthedot.supervisor.exit_codes import FAILED, INTERRUPTED, STORE, CommandError
from onthedot.supervisor.messages import LaunchOptions
from onthedot.supervisor.worker_process import WorkerProcess, describe_exit_code

_AT_ONCE = 100  # coroutines that add
_MAX_PICK_UPS = 500
_READ_INTERVAL = 0.2  # seconds between two reads of the counts while the worker drains
_NAME = "ONTHEDOT_APP_NAME"


class Measure(Struct):
    """One line of the table. Times are milliseconds."""

    what: str
    tasks: int
    per_second: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@click.command()
@click.option(
    "--tasks", type=click.IntRange(100, 100_000), default=10_000, show_default=True,
    help="Number of no-op tasks; a tenth of them are added one by one.",
)  # fmt: skip
@shared("store", "app", "json")
@click.pass_obj
def bench(options: GlobalOptions, tasks: int) -> None:
    """Measure a store from this machine: adds, a drain by one worker process, and the time until a task begins.

    The tasks are those of an app of its own, which is removed at the end, also after Ctrl+C. SQLite: a file of its own
    in a folder beside yours. Nothing else is read or changed, but the server or the disk is busy meanwhile.
    """
    require_unix("bench")
    url, _ = target(options, named=False)
    out = screen(plain=options.json)
    with _own_app(url) as (own, name):
        title = "" if options.json else f"{masked(url)}, app {name}: {tasks:,} tasks"
        measures = asyncio.run(_until_stopped(own, name, tasks, out, title))
    if measures is None:
        raise CommandError(f"interrupted; app {name} is removed", INTERRUPTED)
    if options.json:
        write_json({"store": masked(url), "tasks": tasks, "measures": measures})
    else:
        columns: list[Column | str] = [
            "",
            number("TASKS"),
            number("PER SECOND"),
            number("P50"),
            number("P95"),
            number("P99"),
        ]
        out.table(columns, [_row(measure) for measure in measures])


def _row(measure: Measure) -> list[str]:
    rate = "-" if measure.per_second is None else f"{measure.per_second:,.0f}"
    times = ["-" if ms is None else f"{ms:,.1f} ms" for ms in (measure.p50, measure.p95, measure.p99)]
    return [measure.what, f"{measure.tasks:,}", rate, *times]


@contextmanager
def _own_app(url: str) -> Generator[tuple[str, str], None, None]:
    """Yield the URL and the name of an app that is removed at the end."""
    name = f"bench-{uuid4().hex[:8]}"
    if url.startswith("memory:"):
        raise CommandError("memory:// lives inside one process: a worker process cannot run its tasks; name a --store")
    path = file_of(url)
    if path is None:
        remove_app(url, name)  # a user who may not remove it must not add anything
        try:
            yield url, name
        finally:
            remove_app(url, name)
        return
    try:
        folder = tempfile.TemporaryDirectory(prefix="onthedot-bench-", dir=path.absolute().parent)
    except OSError as error:
        raise CommandError(f"no file can be made beside {path}: {error}", STORE) from None
    with folder as place:
        yield file_url(Path(place) / "bench.db"), name


async def _until_stopped(url: str, name: str, tasks: int, out: Screen, title: str) -> list[Measure] | None:
    """None: stopped by Ctrl+C or SIGTERM; nothing runs any more."""
    with stop_event("removing the app of this run; Ctrl+C again leaves it there") as stop:
        if title:
            click.echo(title)
        measuring = asyncio.create_task(_measures(url, name, tasks, out))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((measuring, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if measuring.done():
            return measuring.result()
        measuring.cancel()
        with suppress(asyncio.CancelledError):
            await measuring
        return None


async def _measures(url: str, name: str, tasks: int, out: Screen) -> list[Measure]:
    app: App[None] = App(name, store=url)
    one_by_one = tasks // 10
    async with app:
        first = await app.named("noop").enqueue()  # connects, so that no add that is measured does
        measures = [
            await _add(app, "add, one by one", one_by_one, 1, out),
            await _add(app, f"add, {_AT_ONCE} at once", tasks - one_by_one, _AT_ONCE, out),
        ]
        async with _worker(url, name) as worker:
            measures.append(await _or_death_of(worker, _drain(app, first.uuid, tasks + 1, out)))
            measures.append(await _or_death_of(worker, _pick_up(app, min(tasks, _MAX_PICK_UPS), out)))
    return measures


async def _add(app: App[None], what: str, tasks: int, adders: int, out: Screen) -> Measure:
    noop = app.named("noop")
    left = iter(range(tasks))  # shared by the adders
    times: list[float] = []

    async def add(advance: Callable[[int], None]) -> None:
        for _ in left:
            began = time.perf_counter()
            _ = await noop.enqueue()
            times.append(time.perf_counter() - began)
            if len(times) % 100 == 0:
                advance(len(times))

    with out.progress(what, tasks) as advance:
        began = time.perf_counter()
        await asyncio.gather(*(add(advance) for _ in range(adders)))
        took = time.perf_counter() - began
    return Measure(what, tasks, tasks / took, *_percentiles(times))


@asynccontextmanager
async def _worker(url: str, name: str) -> AsyncGenerator[WorkerProcess, None]:
    """A worker process as `onthedot worker` starts it, without its INFO lines."""
    before = os.environ.get(_NAME)
    os.environ[_NAME] = name
    config = LaunchOptions(
        "onthedot.cli.bench_tasks:app", url, stop_timeout=1, log_level="WARNING", components=False
    )  # fmt: skip
    try:
        worker = await WorkerProcess.start(config)
    finally:
        del os.environ[_NAME]
        if before is not None:
            os.environ[_NAME] = before
    try:
        yield worker
    finally:
        await worker.stop()


async def _or_death_of(worker: WorkerProcess, measuring: Coroutine[None, None, Measure]) -> Measure:
    measure = asyncio.create_task(measuring)
    death = asyncio.create_task(worker.wait_ended())
    try:
        await asyncio.wait((measure, death), return_when=asyncio.FIRST_COMPLETED)
        if measure.done():
            return measure.result()
        reason = worker.error or describe_exit_code(death.result())
        raise CommandError(f"the worker process has ended: {reason}", FAILED)
    finally:
        for each in (measure, death):
            each.cancel()
        await asyncio.wait((measure, death))


async def _drain(app: App[None], first: str, tasks: int, out: Screen) -> Measure:
    """From the claim of the first task to the last settle, by the clock of the store."""
    with out.progress("drain", tasks) as advance:
        ended = 0
        while ended < tasks:
            await asyncio.sleep(_READ_INTERVAL)
            ended = (await app.runtime.portal.run(_counts)).get("succeeded", 0)
            advance(ended)
    started = (await app.get(first)).started_at
    (last,) = await app.find(state="succeeded", limit=1)  # they are ordered by their end
    assert started is not None
    assert last.ended_at is not None
    milliseconds = max(1.0, (last.ended_at - started) / timedelta(milliseconds=1))  # the store counts these
    return Measure("drain", tasks, tasks / milliseconds * 1000)


async def _counts(client: StoreClient) -> dict[str, int]:
    return await client.operations.counts()


async def _pick_up(app: App[None], tasks: int, out: Screen) -> Measure:
    """From the call of enqueue() here to the begin of the task in the worker, which is idle each time."""
    times: list[float] = []
    with out.progress("pick-up", tasks) as advance:
        while len(times) < tasks:
            handle = await app.named("pick_up").enqueue(added=time.monotonic())
            times.append(await handle)
            advance(len(times))
    return Measure("pick-up by an idle worker", tasks, None, *_percentiles(times))


def _percentiles(seconds: list[float]) -> tuple[float, float, float]:
    """p50, p95 and p99 in milliseconds: of so many percent of the values, none is greater.

    >>> _percentiles([0.001 * each for each in range(1, 101)])
    (50.0, 95.0, 99.0)
    """
    ordered = sorted(seconds)
    p50, p95, p99 = (ordered[math.ceil(len(ordered) * percent / 100) - 1] * 1000 for percent in (50, 95, 99))
    return p50, p95, p99
