"""The runs of `./dev test`: at most three at a time, and then the tests that assert wall-clock time, alone.

    python -m tests.support.suite ENVIRONMENT… -- PYTEST-ARGUMENTS…

The first environment has the default Python. The output of a run is printed when the run ends. The last lines of all
are one summary per run and the names of the tests that failed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

MOST = 3  # runs at a time: half of a test's time is waiting, but with more runs two cores are too slow for all of them
SLOW = 10.0  # seconds; tests above it are listed
GRACE = 30.0  # seconds for an interrupted run to stop its servers
LAST_LINES = 20  # of the output of an interrupted run
NO_TESTS = 5  # exit code of pytest: the files it was given hold nothing for this run


@dataclass(frozen=True)
class Run:
    """One pytest process to start."""

    name: str
    environment: str
    marks: str


@dataclass
class Report:
    """The content of the JUnit file of a run."""

    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list[str])
    slow: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Ended:
    name: str
    code: int
    seconds: float
    report: Report | None

    @property
    def is_good(self) -> bool:
        return self.code in (0, NO_TESTS)

    def summary(self) -> str:
        verdict = "ok" if self.is_good else "FAILED"
        if self.report is None:
            counts = f"no report, exit code {self.code}"
        else:
            counts = f"{self.report.passed} passed, {len(self.report.failed)} failed, {self.report.skipped} skipped"
            if not self.is_good and not self.report.failed:
                counts += f", exit code {self.code}"
        return f"{verdict:6} {self.name}: {counts}, {self.seconds:.0f} s"


class Running:
    """A pytest process, with its output in a file."""

    def __init__(self, run: Run, arguments: Sequence[str], folder: Path) -> None:
        self.name = run.name
        self._report_file = folder / "report.xml"
        self._log = folder / "log"
        self._began = time.monotonic()
        command = [
            f"{run.environment}/bin/python", "-m", "pytest", "-p", "no:cacheprovider",
            "--basetemp", str(folder / "f"), "--junit-xml", str(self._report_file), "-o", "junit_family=xunit1",
            "-m", f"not slow and {run.marks}", *arguments,
        ]  # fmt: skip
        say(f"{run.name}: pytest -m '{run.marks}' {' '.join(arguments)}")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def output(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def ended(self) -> Ended | None:
        """None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        return Ended(self.name, code, time.monotonic() - self._began, read_report(self._report_file))

    def wait_for_interrupted(self) -> None:
        """Kills what is left of its process group after the grace."""
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def say(text: str) -> None:
    print(f"→ {text}", flush=True)


def runs_side_by_side(environments: Sequence[str]) -> list[Run]:
    """Tests marked once (whole programs, servers, faults, searches) do not depend on the Python version."""
    default, *others = environments
    return [
        Run("once", default, "not timed and once and not fault and not search"),
        Run("faults", default, "not timed and once and fault"),
        Run("every Python", default, "not timed and not once"),
        Run("searches", default, "not timed and search"),
        *(Run(f"every Python, {Path(other).name}", other, "not timed and not once") for other in others),
    ]


def run_alone(environments: Sequence[str]) -> list[Run]:
    return [Run("timed, alone", environments[0], "timed")]


def read_report(path: Path) -> Report | None:
    """None: pytest died before it wrote one."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return None
    report = Report()
    for case in cases:
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '')}"
        seconds = float(case.get("time", "0"))
        if seconds > SLOW:
            report.slow.append(f"{seconds:5.1f} s {name}")
        if case.find("failure") is not None or case.find("error") is not None:
            report.failed.append(name)
        elif case.find("skipped") is not None:
            report.skipped += 1
        else:
            report.passed += 1
    return report


class Suite:
    """Starts runs and collects how they ended."""

    def __init__(self, arguments: Sequence[str], folder: Path, most: int = MOST) -> None:
        self._arguments = arguments
        self._folder = folder
        self._most = most
        self._running: list[Running] = []
        self.ended: list[Ended] = []

    def perform(self, runs: Sequence[Run]) -> None:
        """Returns when all of them have ended."""
        pending = list(runs)
        while pending or self._running:
            while pending and len(self._running) < self._most:
                folder = self._folder / str(len(self.ended) + len(self._running))
                folder.mkdir()
                self._running.append(Running(pending.pop(0), self._arguments, folder))
            self._collect()
            time.sleep(0.2)

    def _collect(self) -> None:
        for running in list(self._running):
            ended = running.ended()
            if ended is not None:
                self._running.remove(running)
                self.ended.append(ended)
                print(f"\n→ {running.name}:\n{running.output()}", flush=True)

    def interrupt(self) -> None:
        """Lets the runs stop their servers, and shows how far they came."""
        for running in self._running:
            if running.process.poll() is None:
                running.process.send_signal(signal.SIGINT)
        for running in self._running:
            running.wait_for_interrupted()
            tail = "\n".join(running.output().splitlines()[-LAST_LINES:])
            print(f"\n→ {running.name}, interrupted:\n{tail}", flush=True)

    def print_summary(self) -> None:
        def of_all(names: Callable[[Report], list[str]]) -> list[str]:
            return [f"{name} ({ended.name})" for ended in self.ended if ended.report for name in names(ended.report)]

        for title, names in (
            (f"Tests that took more than {SLOW:g} s:", sorted(of_all(lambda report: report.slow), reverse=True)),
            ("Runs:", [ended.summary() for ended in self.ended]),
            ("Failed tests:", of_all(lambda report: report.failed)),
        ):
            if names:
                print("\n".join(["", title, *(f"  {name}" for name in names)]), flush=True)


def stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main(words: Sequence[str]) -> int:
    mark = words.index("--")
    environments = words[:mark]
    signal.signal(signal.SIGTERM, stop)
    # Short names: sockets are in the folders of tests, and the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="t-", ignore_cleanup_errors=True) as folder:
        suite = Suite(words[mark + 1 :], Path(folder))
        try:
            suite.perform(runs_side_by_side(environments))
            suite.perform(run_alone(environments))
        except KeyboardInterrupt:
            suite.interrupt()
            return 130
        finally:
            suite.print_summary()
    return 0 if all(ended.is_good for ended in suite.ended) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
