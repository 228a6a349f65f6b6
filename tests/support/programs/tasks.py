"""Tasks that run in pool children. Imported by the tests and by the children."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onthedot import App, BaseTaskConsumer, Cancel, Reject, Retry, Snooze, Task, WorkerDied, current_task
from onthedot.executors.processes import Processes
from onthedot.model.context import current_run


@asynccontextmanager
async def lifespan() -> AsyncIterator[dict[str, int]]:
    state = {"pid": os.getpid(), "runs": 0}
    yield state
    if "LEAVES" in os.environ:
        leave(Path(os.environ["LEAVES"]))


def leave(folder: Path) -> None:
    (folder / str(os.getpid())).touch()


app = App(
    "processes",
    store="memory://",
    lifespan=lifespan,
    processes=2,
    stop_timeout=0,
    executors={
        "spawn": Processes(2, method="spawn"),
        "one": Processes(1, max_tasks_per_child=2),
        "small": Processes(1, memory_limit=1 << 30),
        "hasty": Processes(1, boot_timeout=0.001),
    },
)
in_process = app.task(executor="process")


class Own(Exception):
    pass


@dataclass
class Point:
    x: int
    y: int


@in_process
def add(a: int, b: int) -> int:
    return a + b


@in_process
def mirrored(point: Point, loose: Any) -> tuple[Point, Any]:
    return Point(point.y, point.x), loose


@in_process
def pid() -> int:
    return os.getpid()


@app.task(executor="spawn")
def spawned_pid() -> int:
    return os.getpid()


@in_process
async def slowly(text: str) -> str:
    await asyncio.sleep(0)
    return f"{current_task().args['text']} {text}"


@app.task(executor="process", timeout=60, tags=("eu",))
def known() -> dict[str, Any]:
    ctx = current_task()
    ctx.logger.info("here")
    return {
        "uuid": ctx.uuid, "source": ctx.source, "attempt": ctx.attempt, "metadata": dict(ctx.metadata),
        "tags": list(ctx.tags), "fence": ctx.fence, "deadline": ctx.deadline, "is_last": ctx.is_last_attempt,
    }  # fmt: skip


@in_process
def reports(gate: str) -> None:
    current_task().progress(3, 4)
    wait_for(Path(gate))


@in_process
def spawns(then_fail: bool) -> str:
    handle = current_task().spawn(add.s(1, 2))
    if then_fail:
        raise ValueError("after the spawn")
    return handle.uuid


@in_process
def adds() -> str:
    return add.delay(20, 22).uuid


RAISED: dict[str, BaseException | type[BaseException]] = {
    "own": Own("mine"),
    "other": ValueError("not mine"),
    "retry": Retry(0.01),
    "snooze": Snooze(0.11),
    "reject": Reject("no good"),
    "cancel": Cancel("not wanted"),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
    "stop": StopIteration,
}


@app.task(executor="process", max_retries=1, backoff=0.01, retry_on=(Own,))
def raises(what: str) -> str:
    ctx = current_task()
    if ctx.attempt > 1 and what in ("own", "retry"):
        return "second time"
    run = current_run()
    assert run is not None
    if what == "snooze" and time.time() * 1000 - run.record.added > 100:
        return f"attempt {ctx.attempt}"
    raise RAISED[what]


@app.task(executor="process", max_retries=1, backoff=0.01, retry_on=(WorkerDied,))
def dies(how: str, always: bool) -> str:
    if current_task().attempt > 1 and not always:
        return "second time"
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(60)
    return "survived"


@in_process
def unstorable() -> object:
    return object()


@in_process
def large(data: bytes, times: int) -> bytes:
    return data * times


@app.task(executor="process", timeout=0.5)
def stubborn(folder: str) -> None:
    ignore_all(Path(folder))


@in_process
def endless(folder: str) -> None:
    ignore_all(Path(folder))


@in_process
def waits(gate: str) -> str:
    wait_for(Path(gate))
    return "done"


@in_process
def forks_and_returns(folder: str) -> str:
    """A fork that returns as if it were the task."""
    if os.fork() == 0:
        Path(folder, "forked").touch()
        return "of the fork"
    wait_for(Path(folder, "forked"))
    return "of the task"


@in_process
def state() -> dict[str, int]:
    app.state["runs"] += 1
    return {**app.state, "here": os.getpid()}


@app.task(executor="one")
def limited() -> int:
    return os.getpid()


@app.task(executor="small")
def allocates(size: int) -> int:
    return len(bytearray(size))


@app.task(executor="hasty")
def never_begins() -> None:
    pass


class Consumer(BaseTaskConsumer):
    name = "consumer"
    executor = "process"

    def consume(self, task: Task) -> Any:
        return [task.args, os.getpid()]


app.register(Consumer())


def declare_inside() -> Any:
    @app.task(name="inside", executor="process")
    def inside() -> None:
        pass

    return inside


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(str(path))
        time.sleep(0.001)


def ignore_all(folder: Path) -> None:
    """Computes forever in two processes that ignore SIGTERM and the death of their parent."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    name = "child" if child == 0 else "task"
    folder.joinpath(f"{name}.new").write_text(str(os.getpid()))
    folder.joinpath(f"{name}.new").rename(folder / name)
    sum(1 for _ in iter(int, 1))  # never ends
