"""The App in scripts: each runs from a file in its own process, as users run it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from onthedot import App, SchedulerStateError, TaskTimeout
from onthedot.executors.processes import fork_server
from tests.acceptance.scripts import Script
from tests.support.waits import SOON, wait_until

pytestmark = [
    pytest.mark.skipif(not fork_server.is_supported(), reason="needs process groups"),
    pytest.mark.usefixtures("nothing_stays"),
]

METHODS = ("forkserver", "spawn")


# -- four combinations


@pytest.mark.parametrize("threading", [True, False])
def test_blocking_start_runs_sync_functions_in_a_thread_or_process(
    script: Callable[[str], Script], threading: bool
) -> None:
    seen = script(f"""
        app = App("c", store="memory://", max_workers=2)

        @app.task
        def sync():
            return [os.getpid(), threading.current_thread() is threading.main_thread()]

        @app.task
        async def on_loop():
            return os.getpid()

        def ask():
            say(["sync", *sync.delay().result(20)])
            say(["async", on_loop.delay().result(20)])
            os.kill(os.getpid(), signal.SIGINT)

        if __name__ == "__main__":
            threading.Thread(target=ask).start()
            say(["me", os.getpid()])
            app.start(auto=False, threading={threading})
            say(["returned"])
    """).run()
    (_, me), (_, sync, in_main_thread), (_, on_loop), returned = seen
    assert returned == ["returned"]
    assert on_loop == me
    assert (sync == me) is threading
    assert in_main_thread is not threading


@pytest.mark.parametrize("process", [False, True])
def test_background_start_uses_a_thread_or_a_process(script: Callable[[str], Script], process: bool) -> None:
    me, sync, on_loop, after = script(f"""
        app = App("c", store="memory://")

        @app.task
        def sync():
            return os.getpid()

        @app.task
        async def on_loop():
            return os.getpid()

        if __name__ == "__main__":
            with app.background(process={process}):
                say(os.getpid())
                say(sync.delay().result(20))
                say(on_loop.delay().result(20))
            say(app.status()["status"])
    """).run()
    assert (on_loop == me) is not process
    assert (sync == me) is not process
    assert not process or sync != on_loop
    assert after == "stopped"


def test_two_cpu_bound_tasks_run_in_parallel(script: Callable[[str], Script]) -> None:
    (results,) = script("""
        app = App("c", store="memory://", max_workers=2)

        @app.task
        def meet(me: str, other: str) -> int:
            Path(me).touch()
            while not Path(other).exists():  # each goes on only if the other runs at the same time
                sum(range(1000))
            return os.getpid()

        if __name__ == "__main__":
            app.start(auto=True, threading=False)
            handles = [meet.delay("a", "b"), meet.delay("b", "a")]
            say([os.getpid(), *(handle.result(20) for handle in handles)])
    """).run()
    assert len(set(results)) == 3


# -- start before the declarations


ORDER = """
multiprocessing.set_start_method(sys.argv[1], force=True)
Path("imports").open("a").write(f"{__name__} {os.getpid()}\\n")
app = App("c", store=sys.argv[2], max_workers=2)
%(guard)sapp.start(auto=True, threading=False)

@app.task
def double(n: int) -> list[int]:
    return [n * 2, os.getpid()]

%(guard)ssay([double.delay(n).result(20)[0] for n in range(5)])
%(guard)ssay(app.status()["status"])
"""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("guard", ["", 'if __name__ == "__main__": '])
@pytest.mark.parametrize("store", ["memory://", "sqlite:///tasks.db"])
def test_script_may_start_then_declare_then_delay(
    script: Callable[[str], Script], tmp_path: Path, guard: str, method: str, store: str
) -> None:
    seen = script(ORDER % {"guard": guard}).run(method, store)
    assert seen == [[0, 2, 4, 6, 8], "running"]
    names = [line.split()[0] for line in (tmp_path / "imports").read_text().splitlines()]
    assert names.count("__main__") == 1
    assert 2 <= names.count("__mp_main__") <= 5  # the scheduler, two children, a spare one, perhaps one more


def test_task_that_no_import_finds_is_refused_at_once(script: Callable[[str], Script]) -> None:
    (message,) = script("""
        app = App("c", store="memory://")

        if __name__ == "__main__":
            app.start(auto=True, threading=False)
            try:
                @app.task
                def late(): pass
            except TypeError as error:
                say(str(error))
    """).run()
    assert "'late'" in message
    assert "module level" in message


def test_tasks_of_a_module_imported_after_start_run(script: Callable[[str], Script], tmp_path: Path) -> None:
    tmp_path.joinpath("shop.py").write_text("from onthedot import App\napp = App('c', store='memory://')\n")
    tmp_path.joinpath("more.py").write_text(
        "from shop import app\n@app.task\ndef double(n: int) -> int:\n    return n * 2\n"
    )
    assert script("""
        from shop import app

        if __name__ == "__main__":
            app.start(auto=True, threading=False)
            from more import double
            say(double.delay(4).result(20))
    """).run() == [8]


def test_main_without_a_file_is_refused_for_processes() -> None:
    code = "from onthedot import App\napp = App('c', store='memory://')\napp.start(auto=True, threading=False)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SOON, check=False)
    assert done.returncode == 1
    assert "threading=True" in done.stderr.splitlines()[-1]


def test_app_that_no_import_creates_is_refused(script: Callable[[str], Script]) -> None:
    (message,) = script("""
        def main():
            app = App("c", store="memory://")
            try:
                app.start(auto=True, threading=False)
            except Exception as error:
                say(f"{type(error).__name__}: {error}")
            app.start(auto=True, threading=True)  # a start that failed can be tried again, in another way
            app.shutdown()

        if __name__ == "__main__":
            main()
    """).run()
    assert message.startswith("SchedulerStateError")
    assert "module level" in message


def test_failed_start_raises_the_reason_and_can_be_repeated(script: Callable[[str], Script]) -> None:
    seen = script("""
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def lifespan():
            if not Path("ready").exists():
                raise RuntimeError("not yet")
            yield

        app = App("c", store="memory://", lifespan=lifespan)

        @app.task
        def work(): return 1

        if __name__ == "__main__":
            try:
                app.start(auto=True, threading=False)
            except Exception as error:
                say(f"{type(error).__name__}: {error}")
            say(app.status()["status"])
            Path("ready").touch()
            say(app.start(auto=True, threading=False))
            say(work.delay().result(20))
    """).run()
    assert "RuntimeError: not yet" in seen[0]
    assert seen[1:] == ["stopped", True, 1]


# -- delay from everywhere


def test_delay_works_from_sync_and_async_code_threads_processes_and_forks(script: Callable[[str], Script]) -> None:
    assert script("""
        import asyncio, subprocess

        app = App("c", store="sqlite:///tasks.db")

        @app.task
        def double(n: int) -> int:
            return n * 2

        async def from_async():
            handle = await double.enqueue(3)
            return [await handle, double.delay(4).uuid != ""]

        def from_fork():
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.write(writer, str(double.delay(5).result(20)).encode())
                os._exit(0)
            return int(os.read(reader, 100))

        if __name__ == "__main__":
            if sys.argv[1:] == ["other"]:
                say(double.delay(6).result(20))
                sys.exit()
            app.start(auto=True, threading=False)
            say(double.delay(1).result(20))
            thread = threading.Thread(target=lambda: say(double.delay(2).result(20)))
            thread.start()
            thread.join()
            say(asyncio.run(from_async()))
            say(from_fork())
            subprocess.run([sys.executable, __file__, "other"], check=True)
            say(app.status()["status"])
    """).run() == [2, 4, [6, True], 10, 12, "running"]


@pytest.mark.timed
async def test_result_on_the_event_loop_of_the_app_is_an_error() -> None:
    app = App("c", store="memory://")

    @app.task
    async def work() -> None:
        pass

    async with app.running():
        began = time.monotonic()
        with pytest.raises(SchedulerStateError, match="await"):
            work.delay().result()
        assert time.monotonic() - began < 0.1


@pytest.mark.timed
@pytest.mark.parametrize("process", [False, True])
def test_tasks_declared_after_start_run_at_once(script: Callable[[str], Script], process: bool) -> None:
    (took,) = script(f"""
        app = App("c", store="memory://")
        app.start(auto=True, threading={not process})

        @app.task
        async def warm() -> None: pass

        @app.task
        async def fresh(then: float) -> float:
            return time.time() - then

        warm.delay().result(20)
        say(fresh.delay(time.time()).result(20))
    """).run()
    assert took < 0.1


# -- the three settings


def test_max_workers_limits_threads_and_processes() -> None:
    app = App("c", store="memory://", max_workers=3)
    slots = app.runtime.config.slots
    assert (slots["thread"], slots["process"]) == (3, 3)


def test_task_timeout_is_the_default_timeout_of_tasks() -> None:
    app = App("c", store="memory://", task_timeout=0.05)

    @app.task
    async def hang() -> None:
        await asyncio.Event().wait()

    with app.background():
        assert isinstance(hang.delay().exception(SOON), TaskTimeout)


def test_own_logger_gets_the_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    own = logging.getLogger("mine")
    app = App("c", store="memory://", logger=own)

    @app.task
    def work() -> None:
        pass

    with caplog.at_level(logging.INFO, "mine"), app.background():
        work.delay().result(SOON)
    assert {record.name for record in caplog.records} == {"mine.scheduler", "mine.task"}


def test_threads_end_with_shutdown() -> None:
    before = set(threading.enumerate())
    app = App("c", store="memory://")
    with app.background():
        pass
    wait_until(lambda: set(threading.enumerate()) <= before)
