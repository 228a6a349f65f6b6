"""Worker processes of the fault tests that can be killed and replaced."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.leak_check import descendants
from tests.support.process_guard import start_guarded

ROOT = Path(__file__).parents[2]


SOURCE = ROOT / "src"


def environment(store: str, run_log: Path, source: Path = SOURCE) -> dict[str, str]:
    """source: where the package is; by default this tree, also in a copy of it (tests/mutants)."""
    path = os.pathsep.join([str(source), str(ROOT)])
    return {**os.environ, "STORE": store, "RUN_LOG": str(run_log), "PYTHONPATH": path}


class WorkerProcesses:
    def __init__(
        self, store: str, run_log: Path, size: int, program: str = "tests.faults.task_app", source: Path = SOURCE
    ) -> None:
        self._program = program
        self.environment = environment(store, run_log, source)
        self.log = run_log.with_suffix(".log")
        self.workers: list[subprocess.Popen[bytes]] = [self.start() for _ in range(size)]

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return start_guarded(
                [sys.executable, "-m", self._program], env=self.environment, cwd=ROOT, stdout=log, stderr=log
            )

    def kill(self, index: int) -> tuple[int, float]:
        """Sends SIGKILL; returns the pid and the time."""
        worker = self.workers[index]
        died = time.monotonic()
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        return worker.pid, died

    def replace(self, index: int) -> None:
        self.workers[index] = self.start()

    def replace_dead(self) -> int:
        """Replaces workers that have died by themselves; returns their number."""
        dead = [index for index, worker in enumerate(self.workers) if worker.poll() is not None]
        for index in dead:
            self.replace(index)
        return len(dead)

    def stop(self) -> list[int | None]:
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(10)
        codes = [worker.poll() for worker in self.workers]
        for worker in self.workers:
            worker.kill()
            worker.wait()
        return codes


@contextlib.contextmanager
def worker_processes(
    store: str, run_log: Path, size: int, program: str = "tests.faults.task_app", source: Path = SOURCE
) -> Iterator[WorkerProcesses]:
    workers = WorkerProcesses(store, run_log, size, program, source)
    try:
        yield workers
    finally:
        workers.stop()


@contextlib.contextmanager
def forked_workers(
    store: str, run_log: Path, size: int, program: str = "tests.faults.task_app"
) -> Iterator[subprocess.Popen[bytes]]:
    """Workers that one process forks."""
    with run_log.with_suffix(".log").open("ab") as log:
        parent = start_guarded(
            [sys.executable, "-m", program, str(size)],
            env=environment(store, run_log), cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield parent
    finally:
        parent.send_signal(signal.SIGTERM)
        try:
            parent.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(parent.pid, signal.SIGKILL)  # it has its own session
            parent.wait()
            raise
        assert parent.returncode in {0, -signal.SIGKILL}, "it has stopped its workers, or the test has killed them all"


def kill_a_forked_worker(parent: subprocess.Popen[bytes], rng: random.Random) -> int:
    """Kills one of the workers that the process has forked, which forks another one; returns the pid."""
    wait_for(lambda: bool(descendants(parent.pid)), 60)
    pid = rng.choice(sorted(descendants(parent.pid)))
    os.kill(pid, signal.SIGKILL)
    return pid


def run_forked(number: int, run: Callable[[], object]) -> None:
    """Forks this many workers, and another one for each that is killed; all end with this process.

    Starting an interpreter would take longer than most tests. The signals are awaited, so that none of them arrives
    between the end of a worker and its removal from the list.
    """
    awaited = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    children = {_fork_worker(run, awaited) for _ in range(number)}
    stopping = False
    while children:
        if signal.sigwait(awaited) == signal.SIGTERM:
            stopping = True
            for pid in children:
                os.kill(pid, signal.SIGTERM)  # none of them is reaped, so that each pid is still its own
        for _ in range(_reap(children)):
            if not stopping:
                children.add(_fork_worker(run, awaited))


def _fork_worker(run: Callable[[], object], blocked: set[signal.Signals]) -> int:
    if pid := os.fork():
        return pid
    signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
    run()
    os._exit(0)


def _reap(children: set[int]) -> int:
    """Removes the ones that have ended; returns their number."""
    ended = {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
    children -= ended
    return len(ended)


def run_clients(store: str, run_log: Path, size: int, work: str, source: Path = SOURCE) -> list[str]:
    """The results of this many client processes; `work` is the body of a function of the client's number."""
    script = CLIENTS.replace("    WORK", textwrap.indent(textwrap.dedent(work).strip(), "    "))
    command = [sys.executable, "-c", script, str(size)]
    clients = start_guarded(command, env=environment(store, run_log, source), cwd=ROOT)
    assert clients.wait(600) == 0
    return [run_log.with_suffix(f".{number}").read_text() for number in range(size)]


CLIENTS = """
import os, sys, time
from pathlib import Path
from tests.faults import task_app

def work(number):
    WORK

gate, children = os.pipe(), []
for number in range(int(sys.argv[1])):
    if not (pid := os.fork()):
        os.close(gate[1])
        os.read(gate[0], 1)  # all clients begin when the gate is closed
        Path(os.environ["RUN_LOG"]).with_suffix(f".{number}").write_text(str(work(number)))
        os._exit(0)
    children.append(pid)
os.close(gate[1])
sys.exit(max(os.waitpid(pid, 0)[1] for pid in children))
"""


def wait_for(condition: Callable[[], bool], seconds: float, meanwhile: Callable[[], object] = lambda: None) -> float:
    """Waits for the condition and returns the seconds; fails after too many."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds:g} s"
        meanwhile()
        time.sleep(0.02)
    return time.monotonic() - began


def wait_for_progress(
    count: Callable[[], int], total: int, meanwhile: Callable[[], object] = lambda: None, stall: float = 20
) -> None:
    """Waits until the count is the total; fails when it has not changed for `stall` seconds."""
    found = count()
    while found != total:
        before = found
        deadline = time.monotonic() + stall
        while found == before:
            assert time.monotonic() < deadline, f"{found} of {total}, and no change for {stall:g} s"
            meanwhile()
            time.sleep(0.02)
            found = count()
