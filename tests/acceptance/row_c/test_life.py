"""The App in scripts: start, shutdown, and every kind of end."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from onthedot import App
from onthedot.executors.processes import fork_server
from tests.acceptance.scripts import Script
from tests.support.leak_check import descendants
from tests.support.waits import SOON, wait_until

pytestmark = [
    pytest.mark.skipif(not fork_server.is_supported(), reason="needs process groups"),
    pytest.mark.usefixtures("nothing_stays"),
]


def waiting_in(file: Path) -> int:
    app = App("c", store=f"sqlite:///{file}")
    try:
        return len(app.sync.find(state="ready").tasks)
    finally:
        app.shutdown()


def test_second_start_is_ignored_or_refused(script: Callable[[str], Script]) -> None:
    assert script("""
        app = App("c", store="memory://")

        if __name__ == "__main__":
            logging.disable()
            say(app.start(auto=True, threading=False))
            say(app.start(auto=True, threading=False))
            for again in (lambda: app.start(auto=True), lambda: app.start()):
                try:
                    again()
                except Exception as error:
                    say(type(error).__name__)
            say(app.shutdown())
            say(app.shutdown())
            say(app.start(auto=True))
    """).run() == [True, False, "SchedulerStateError", "SchedulerStateError", True, False, True]


def test_delay_works_before_start_and_after_shutdown(script: Callable[[str], Script]) -> None:
    assert script("""
        app = App("c", store="memory://")

        @app.task
        def double(n: int) -> int:
            return n * 2

        if __name__ == "__main__":
            before = double.delay(1)
            app.start(auto=True, threading=False)
            say(before.result(20))
            app.shutdown()
            say(before.result(20))
            after = double.delay(2)
            say(after.state())
            app.start(auto=True, threading=False)
            say(after.result(20))
    """).run() == [2, 2, "ready", 4]


def test_shutdown_cancels_pending_tasks_in_memory(script: Callable[[str], Script]) -> None:
    assert (
        script("""
        app = App("c", store="memory://")

        @app.task
        def later(): pass

        if __name__ == "__main__":
            app.start(auto=True, threading=False)
            handle = later.options(after=3600).delay()
            waiter = threading.Thread(target=lambda: say(str(handle.exception(20))))
            waiter.start()
            app.shutdown()
            waiter.join()
    """)
        .run()[0]
        .endswith("was cancelled: shutdown")
    )


@pytest.mark.timed
@pytest.mark.parametrize("threading", [True, False])
def test_script_that_ends_without_shutdown_leaves_nothing_running(
    script: Callable[[str], Script], tmp_path: Path, threading: bool
) -> None:
    program = script(f"""
        app = App("c", store="sqlite:///tasks.db", stop_timeout=1, max_workers=1)

        @app.task(executor="process")
        def endless():
            Path("began").touch()
            while True:
                sum(range(1000))

        @app.task(executor="process")
        def waiting(): pass

        if __name__ == "__main__":
            app.start(auto=True, threading={threading})
            endless.delay()
            for _ in range(3):
                waiting.delay()
            while not Path("began").exists():
                time.sleep(0.01)
            say("leaving")
    """)
    with program.start() as process:
        assert process.stdout is not None
        assert process.stdout.readline() == '"leaving"\n'
        family = list(descendants(process.pid))
        began = time.monotonic()
        assert process.wait(SOON) == 0
        took = time.monotonic() - began
        wait_until(lambda: not any(map(alive, family)))
    assert took < 1 + 1
    assert waiting_in(tmp_path / "tasks.db") == 4


def test_killed_program_leaves_nothing_running(script: Callable[[str], Script]) -> None:
    program = script("""
        app = App("c", store="memory://", max_workers=1)

        @app.task
        def endless():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.fork()
            os.write(1, f"{os.getpid()}\\n".encode())  # in one piece, since two of them speak at once
            while True:
                sum(range(1000))

        if __name__ == "__main__":
            app.start(auto=True, threading=False)
            endless.delay()
            time.sleep(60)
    """)
    with program.start() as process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline()) for _ in range(2)]
        family = [*pids, *(pid for pid in descendants(process.pid))]
        process.kill()
        assert wait_until(lambda: not any(map(alive, family))) < 0.6


def test_status_of_a_killed_background_process_is_not_running(script: Callable[[str], Script]) -> None:
    assert script("""
        app = App("c", store="memory://")

        @app.task
        async def die():
            os.kill(os.getpid(), signal.SIGKILL)

        @app.task
        def double(n: int) -> int:
            return n * 2

        if __name__ == "__main__":
            app.start(auto=True, threading=False)
            die.options(expires=0.5).delay()
            while app.status()["status"] == "running":
                time.sleep(0.01)
            say(app.status()["status"])
    """).run() == ["stopped"]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_second_interrupt_cancels_running_tasks(script: Callable[[str], Script]) -> None:
    program = script("""
        app = App("c", store="memory://", stop_timeout=60)

        @app.task
        def endless():
            say("runs")
            while True:
                time.sleep(0.1)

        if __name__ == "__main__":
            endless.delay()
            app.start(auto=False, threading=False)
            say("returned")
    """)
    with program.start() as process:
        assert process.stdout is not None
        assert process.stdout.readline() == '"runs"\n'
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(SOON) == 0
        assert process.stdout.readline() == '"returned"\n'
