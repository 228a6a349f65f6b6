"""Programs that have an app: signals, exit and fork, each in a process of its own."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.waits import LONG, SOON

PROGRAM = """
import asyncio, os, signal, sys, threading, time
from onthedot import App, current_task
app = App("shop", store="memory://", stop_timeout={stop_timeout})

@app.task
async def work(seconds: float) -> None:
    print("began", flush=True)
    try:
        await asyncio.sleep(seconds)
        print("finished", flush=True)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise

@app.task
async def add(x: int, y: int) -> int:
    return x + y

def waits_too_short():
    try: add.delay(1, 2).result(timeout=0.05)
    except TimeoutError: return "too long"
"""


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program that has an app; killed in the end if it does not end by itself."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, stop_timeout: float = LONG) -> subprocess.Popen[str]:
        text = PROGRAM.format(stop_timeout=stop_timeout) + textwrap.dedent(code)
        env = {name: value for name, value in os.environ.items() if not name.startswith("ONTHEDOT_")}
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen([sys.executable, "-W", "error", "-c", text], env=env, text=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], SOON)[0], "it says nothing"
    return process.stdout.readline().strip()


def end_of(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    out, err = process.communicate(timeout=LONG)
    return process.returncode, out.split("\n")[:-1], err


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_run_finishes_running_tasks_and_returns(program: Any, sign: signal.Signals) -> None:
    process = program("work.delay(0.3); app.run(); print('returned', app.status()['status'])")
    assert line_of(process) == "began"
    process.send_signal(sign)
    assert end_of(process) == (0, ["finished", "returned stopped"], "")


def test_a_second_ctrl_c_cancels_at_once(program: Any) -> None:
    process = program("""
        def tell():
            while app.status()["status"] != "stopping": time.sleep(0.001)
            print("stopping", flush=True)
        work.delay(1000)
        threading.Thread(target=tell, daemon=True).start()
        app.run()
        print("returned")
    """)
    assert line_of(process) == "began"
    process.send_signal(signal.SIGINT)
    assert line_of(process) == "stopping"
    process.send_signal(signal.SIGINT)
    assert end_of(process) == (0, ["cancelled", "returned"], "")


def test_exit_without_shutdown_stops_in_order(program: Any) -> None:
    process = program("""
        app.start(auto=True)
        print(add.delay(1, 2).result(timeout=10))
        work.delay(0.2)
        while not app.status()["running_count"]: time.sleep(0.001)
    """)
    assert end_of(process) == (0, ["3", "began", "finished"], "")


def test_program_that_only_adds_exits_silently(program: Any) -> None:
    process = program("print(waits_too_short())")
    assert end_of(process) == (0, ["too long"], "")


def test_wait_that_begins_during_shutdown_returns(program: Any) -> None:
    """In a separate process: the remains of a failed shutdown would disturb other tests."""
    process = program("""
        def wait(handle):
            try: handle.result(timeout=10)
            except Exception as error: answers.append(str(error).rpartition(" ")[2])
        for _ in range(20):
            answers = []
            app.start(auto=True)
            handles = add.options(after=100).delay_many([dict(x=1, y=2)] * 30)
            threads = [threading.Thread(target=wait, args=(handle,)) for handle in handles]
            threads.insert(15, threading.Thread(target=app.shutdown))
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert answers == ["shutdown"] * 30, answers
            app.shutdown()
    """)
    assert end_of(process) == (0, [], "")


FORK = """
import warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # it is, that is the point
ending = threading.Event()
def adds_all_the_time():
    while not ending.is_set(): add.delay_many([dict(x=1, y=2)] * 1000)
{before}
for _ in range({times}):
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)  # whatever happens, it ends
        {child}
        print("child", flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
{after}
ending.set()
app.shutdown()
print("parent")
"""
STARTS = "app.start(auto=True); assert add.delay(1, 2).result(timeout=10) == 3; app.shutdown()"
FORKS = {
    "add": ("add.delay(1, 1)", "assert add.delay(1, 2).state() == 'ready'", 1, ""),
    "wait": ("waits_too_short()", "assert waits_too_short()", 1, ""),
    "start": ("waits_too_short()", STARTS, 1, STARTS),
    "start under a worker": ("app.start(auto=True)", STARTS, 1, "assert add.delay(1, 2).result(timeout=10) == 3"),
    "add while another thread adds": (
        "add.delay(1, 1); threading.Thread(target=adds_all_the_time, daemon=True).start()", "add.delay(1, 2)", 10, "",
    ),
}  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(("before", "child", "times", "after"), FORKS.values(), ids=FORKS.keys())
def test_forked_process_adds_with_its_own_connections(
    program: Any, before: str, child: str, times: int, after: str
) -> None:
    code = FORK.format(before=before, child=child, times=times, after=after)
    process = program(code, stop_timeout=0)
    assert end_of(process) == (0, ["child"] * times + ["parent"], "")
