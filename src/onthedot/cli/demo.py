"""``onthedot demo``: a tour. It runs the code it shows (of a step, up to the first empty line) and checks itself."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from onthedot import App, AsyncTaskHandle, AtMost, current_task
from onthedot.cli.interrupt import stop_event
from onthedot.cli.output import Screen, screen
from onthedot.clock.protocol import Timer
from onthedot.model.task import TaskInfo
from onthedot.supervisor.exit_codes import INTERRUPTED
from onthedot.supervisor.messages import LaunchOptions
from onthedot.supervisor.worker_process import WorkerProcess

if TYPE_CHECKING:
    from onthedot.cli.demo_page import DemoPage  # it needs the extra `web`

_quiet = logging.getLogger("onthedot-demo")
_quiet.setLevel(logging.CRITICAL + 1)  # the tour prints what happens
app: App[None] = App("demo", store="memory://", stop_timeout=0.2, logger=_quiet)
press: App[None] = App("press", store="memory://", stop_timeout=0.2, logger=_quiet)  # runs in worker processes


class Stage:
    """The screen and the clock of the tour; the clock may run faster."""

    is_system = False

    def __init__(self, screen: Screen, speed: float) -> None:
        self.screen: Screen = screen
        self.speed: float = speed
        self._began = time.monotonic()
        self._anchor = time.time()
        self.step_began: float = self.now()

    def now(self) -> float:
        return (self._anchor + (time.monotonic() - self._began) * self.speed) * 1000

    def wall_clock_jump(self) -> float:
        return 0.0

    def call_later(self, ms: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(ms / 1000 / self.speed, callback)


stage: Stage = Stage(Screen(), 1)


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds / stage.speed)


def say(text: str) -> None:
    stage.screen.print(f"  [dim]{(stage.now() - stage.step_began) / 1000:5.2f} s[/]  [bold]{text}[/]")


def check(true: bool, claim: str) -> None:
    assert true, f"not so: {claim}"
    stage.screen.print(f"  [green]✓[/] {claim}")


async def watch(handles: Sequence[AsyncTaskHandle[Any]], draw: Callable[[TaskInfo], str]) -> list[TaskInfo]:
    """Draw one line per task until all have ended."""
    with stage.screen.picture() as show:
        while True:
            infos = [await handle.info() for handle in handles]
            show("\n".join(map(draw, infos)) + "\n")
            if all(info.state.ended for info in infos):
                return infos
            await asyncio.sleep(0.03)


@app.task
async def greet(name: str) -> str:
    say(f"hello {name}")
    return f"hello {name}"


async def now_and_later() -> None:
    """Stored when enqueue() returns; run now, or when you say, and never early."""
    now = await greet.enqueue("Ann")
    later = await greet.options(after=1.2).enqueue("Bob")

    check((await now, await later) == ("hello Ann", "hello Bob"), "both results are back")
    check((late := _ms(await later.info()) - 1200) >= 0, f"Bob was not early, and {late:.0f} ms late")


def _ms(info: TaskInfo, end: bool = False) -> float:  # from adding to start or end, so far
    moment = (info.ended_at if end else info.started_at) or datetime.fromtimestamp(stage.now() / 1000, UTC)
    return (moment - info.added_at) / timedelta(milliseconds=1)


@app.task(concurrency=1)
async def bake(what: str) -> None:
    say(f"baking {what}")
    await sleep(0.25)


async def overtaking() -> None:
    """There is one oven, and one order that cannot wait."""
    urgent = bake.options(priority="high").s("a birthday cake")
    handles = await app.enqueue_many([bake.s("bread"), bake.s("rolls"), urgent])

    await asyncio.gather(*handles)
    bread, rolls, cake = [_ms(await handle.info()) for handle in handles]
    check(cake < bread < rolls, "the cake was ordered last and baked first")


@app.task(max_retries=3, backoff=[0.4, 0.8])
async def call_bank() -> str:
    attempt = current_task().attempt
    if attempt < 3:
        say(f"attempt {attempt}: the line is busy")
        raise ConnectionError("the line is busy")
    return f"they answered at attempt {attempt}"


async def retries() -> None:
    """A failed task is tried again after a while. Its errors stay on record."""
    handle = await call_bank.enqueue()
    answer = await handle

    say(answer)
    errors = [error.message for error in (await handle.info()).errors]
    check((answer[-1], errors) == ("3", ["the line is busy"] * 2), "it succeeded, with two errors on record")


@app.task(limits=[AtMost(2, by="customer")])
async def render(customer: str) -> str:
    await sleep(0.4)
    return f"a picture for {customer}"


async def limits() -> None:
    """Acme asks for a lot. It gets two at once, and nobody else has to wait for it."""
    names = ["acme"] * 6 + ["globex"] * 3 + ["initech"]
    handles = await render.enqueue_many([{"customer": name} for name in names])

    def draw(info: TaskInfo) -> str:
        name = info.args["customer"]
        columns = stage.screen.width - 12
        start, end = [min(columns, int(_ms(info, end=ended) / 1350 * columns)) for ended in (False, True)]
        return f"  {name:8}[dim]{'·' * start}[/][{'cyan' if name == 'acme' else 'green'}]{'█' * (end - start)}[/]"

    *acme, globex, _, _, _ = await watch(handles, draw)
    at_once = [sum(_ms(other) <= _ms(each) < _ms(other, end=True) for other in acme) for each in acme]
    check(max(at_once) == 2, "acme never had more than two at once")
    check(_ms(globex) < max(map(_ms, acme)), "the others did not wait for it")


@app.task
async def copy(files: int) -> None:
    for number in range(1, files + 1):
        await sleep(0.04)
        current_task().progress(number, files)


async def progress() -> None:
    """A task reports how far it is, and everybody can see it."""
    handle = await copy.enqueue(files=30)

    def draw(info: TaskInfo) -> str:
        done, total = info.progress or (0, 30)
        width = stage.screen.width - 16
        full = round(width * done / total)
        return f"  [green]{'━' * full}[/][dim]{'─' * (width - full)}[/] {done:3.0f} of {total:.0f}"

    (info,) = await watch([handle], draw)
    check(info.progress == (30, 30), "its last report stays on record")


@app.task
async def charge(card: str) -> str:
    if current_task().attempt == 1:
        raise ConnectionError("the bank is closed")
    return f"charged {card}"


async def a_failure_looked_at() -> None:
    """Nothing is dropped. A failed task is kept, can be found, and shows its error."""
    handle = await charge.enqueue("4242")
    await handle.exception()
    failed = (await app.find(state="failed", error="bank")).tasks

    check([task.uuid for task in failed] == [handle.uuid], f"found {handle.uuid}, and where it failed:")
    assert failed[0].error is not None
    stage.screen.code("\n".join(failed[0].error.traceback.splitlines()[-3:]), "pytb")


async def and_run_again() -> None:
    """By now the bank is open. The same task runs once more, under its uuid."""
    (task,) = (await app.find(state="failed")).tasks
    await app.retry(task.uuid)
    result = await app.ahandle(task.uuid)

    check((result, (await app.get(task.uuid)).attempt) == ("charged 4242", 2), f"{result}, at attempt 2")


@press.task
async def print_book(pages: int) -> int:
    for page in range(1, pages + 1):
        await asyncio.sleep(0.05)
        current_task().progress(page, pages)
        if page == 5 and current_task().attempt == 1:
            await asyncio.sleep(3600)  # the paper is jammed
    return os.getpid()


async def a_crash_survived() -> None:
    """A process is stuck in its task and gets a kill -9. Another one takes it over."""
    handle = await print_book.enqueue(pages=10)
    victim = await stuck_process(handle)
    os.kill(victim, signal.SIGKILL)

    killed = time.time()
    say(f"process {victim} is dead")
    finisher = await handle
    info = await handle.info()
    assert info.started_at is not None
    say(f"process {finisher} has printed the book")
    after = (info.started_at.timestamp() - killed) * 1000
    check(finisher != victim and info.crashes == 1, f"another process began it again, {max(0, after):.0f} ms later")


async def stuck_process(handle: AsyncTaskHandle[int]) -> int:
    while True:
        info = await handle.info()
        if info.progress is not None and info.progress[0] == 5:
            workers = await press.runtime.portal.run(lambda client: client.operations.workers())
            return next(worker.pid for worker in workers if worker.id == info.worker)
        await asyncio.sleep(0.02)


@asynccontextmanager
async def presses(url: str) -> AsyncGenerator[None, None]:
    """Run two worker processes. They end when this process ends, in any way."""
    config = LaunchOptions("onthedot.cli.demo:press", url, stop_timeout=0.2)
    children = [await WorkerProcess.start(config) for _ in range(2)]
    try:
        yield
    finally:
        await asyncio.gather(*(child.stop() for child in children))


ticks: list[datetime] = []


@app.schedule(schedule=timedelta(seconds=0.5))
async def tick() -> None:
    ticks.append(current_task().scheduled_for)


async def a_schedule() -> None:
    """It has ticked every half second since the tour began, and does not drift."""

    for _ in range(3):
        await sleep(0.5)
        say(f"tick {len(ticks)}, the one of {ticks[-1].time().isoformat('milliseconds')}")
    between = [(later - sooner) / timedelta(seconds=0.5) for sooner, later in pairwise(ticks)]
    check(bool(between) and all(each in range(1, 99) for each in between), "every tick was on the grid")


STEPS: list[tuple[Callable[[], Coroutine[Any, Any, None]], Any]] = [
    (now_and_later, greet), (overtaking, bake), (retries, call_bank), (limits, render), (progress, copy),
    (a_failure_looked_at, charge), (and_run_again, None), (a_crash_survived, print_book), (a_schedule, tick),
]  # fmt: skip


def page_of_the_tour() -> AbstractAsyncContextManager[DemoPage | None]:
    """None without the extra `web`."""
    try:
        from onthedot.cli.demo_page import demo_page
    except ImportError:
        return nullcontext()
    return demo_page(app)


async def tour(url: str, with_page: bool) -> None:
    stage.screen.print(f"[bold]onthedot[/] in {len(STEPS)} steps. Nothing to install, nothing left behind.")
    beside = page_of_the_tour() if with_page else nullcontext()
    async with presses(url), press, app.running(), beside as page:
        if page is not None:
            stage.screen.print(f"page {page.address}")
        for number, (step, task) in enumerate(STEPS, 1):
            stage.screen.title(f"{number} {step.__name__.replace('_', ' ').capitalize()}")
            stage.screen.print(step.__doc__ or "")
            act = inspect.getsource(step).split('"""')[2].partition("\n\n")[0]
            stage.screen.code(((inspect.getsource(task) if task else "") + textwrap.dedent(act)).strip())
            await sleep(0.6 if stage.screen.live else 0)  # time to read
            stage.step_began = stage.now()
            await step()
        stage.screen.title("That was it")
        states = Counter(task.state.value for task in (await app.find(limit=10_000)).tasks)
        check(not states["failed"] + states["cancelled"], f"{states['succeeded']} tasks succeeded, none was lost")
        stage.screen.print("\nNow yours: the README has an example of 15 lines.")
        if page is not None and page.is_open and sys.stdin.isatty() and sys.stdout.isatty():
            with stop_event() as stop:
                stage.screen.print("The page stays for you; Ctrl+C ends it.")
                await stop.wait()


@click.command()
@click.option("--speed", type=click.FloatRange(0.1, 100), default=1.0, show_default=True, help="Times faster.")
@click.option("--no-page", is_flag=True, help="Do not serve the page.")
def demo(speed: float, no_page: bool) -> None:
    """A tour in this terminal of what tasks can do, in about 15 seconds. It runs, checks itself and ends.

    The page shows the same tasks. At a terminal, a page that you have opened stays until Ctrl+C.
    """
    global stage  # noqa: PLW0603 - the functions that are shown use it
    stage = Stage(screen(), speed)
    ticks.clear()
    try:
        with tempfile.TemporaryDirectory(prefix="onthedot-demo-") as folder:
            url = f"sqlite:///{folder}/demo.db"
            with app.override(store=url, clock=stage), press.override(store=url):
                asyncio.run(tour(url, not no_page))
    except KeyboardInterrupt:
        stage.screen.print("\nStopped; nothing is left behind.")
        raise SystemExit(INTERRUPTED) from None
