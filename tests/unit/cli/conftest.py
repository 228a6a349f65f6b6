"""A folder with an app and a SQLite file, and the command line: in real processes, or in this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from onthedot import App
from onthedot.cli import main
from tests.support.services import valkey
from tests.support.services.postgres import Service
from tests.support.waits import SOON, wait_until

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
NOBODY = 65534
_START_TIME = 19  # of the fields of /proc/PID/stat after the name; pids are used again
APP = """
import asyncio, os, pathlib, time
from onthedot import App

app = App("shop", store="sqlite:///shop.db")


def note(text):
    with open("notes", "a") as file:
        file.write(text + "\\n")


@app.task
async def greet(name: str, times: int = 1) -> str:
    note(f"greet {name}")
    return " ".join([f"hello {name}"] * times)


@app.task(name="email.send")
async def send(to: str) -> int:
    note(f"send {to}")
    return os.getpid()


@app.task
async def nap(name: str, until: str) -> str:
    note(f"begin {name}")
    while not pathlib.Path(until).exists():
        await asyncio.sleep(0.01)
    note(f"end {name}")
    return name


@app.task
async def block(until: str) -> None:
    note("blocking")
    while not pathlib.Path(until).exists():
        time.sleep(0.01)


@app.task
def fail(order: int, kind: str = "ValueError") -> None:
    raise {"ValueError": ValueError, "KeyError": KeyError}[kind](f"no order {order} for 'c{order}'")
"""


class Running:
    """A running command and its output so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._output = process.stdout or process.stderr
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._output is not None
        self.lines.extend(iter(self._output.readline, ""))

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def until(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.text.count(text) >= times or self.process.poll() is not None)
        assert self.text.count(text) >= times, self.text

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, within: float = SOON) -> int:
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on:\n{self.text}") from None

    def children(self) -> list[int]:
        """Worker processes, the oldest first."""
        found: list[tuple[int, int]] = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[1]) == self.process.pid and fields[0] != "Z":
                    found.append((int(fields[_START_TIME]), int(path.parts[2])))
        return [pid for _, pid in sorted(found)]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self._output is not None
        self._output.close()


class Shop:
    """A folder with an app. `run` is for commands that end, `start` for those that keep running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid4().hex
        self.started: list[Running] = []
        self.app = App("shop", store=f"sqlite:///{folder}/shop.db")  # adds and reads tasks in this process
        (folder / "app.py").write_text(APP)

    def _popen(self, arguments: tuple[str, ...], env: dict[str, str], **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", *arguments]
        drop = [name for name in os.environ if name.startswith("ONTHEDOT")]
        environment = {k: v for k, v in os.environ.items() if k not in drop} | {"MARK": self.mark, **env}
        return subprocess.Popen(command, cwd=self.folder, env=environment, text=True, **options)

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        with self._popen(("-m", "onthedot", *arguments), env or {}, **pipes) as process:
            out, err = process.communicate(timeout=30)
            return process.returncode, out, err

    def do(self, *arguments: str, code: int = 0) -> str:
        """Return the output of a command that must end with this exit code."""
        got, out, err = self.run(*self._stored(arguments))
        assert got == code, (out, err)
        assert "Traceback" not in err
        return out.strip()

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.do(*arguments, "--json", code=code))

    def _stored(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        return (*arguments, "--store", "sqlite:///shop.db")

    def start(self, *arguments: str, env: dict[str, str] | None = None) -> Running:
        return self.python("-m", "onthedot", *arguments, env=env)

    def python(self, *arguments: str, env: dict[str, str] | None = None, **own: int) -> Running:
        """Start a program; stdout and stderr are read together, unless stdout is redirected."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL} | own
        if "stdout" in own:
            pipes["stderr"] = subprocess.PIPE
        self.started.append(Running(self._popen(arguments, {"PYTHONUNBUFFERED": "1", **(env or {})}, **pipes)))
        return self.started[-1]

    def worker(self, *arguments: str, **options: Any) -> Running:
        running = self.start("worker", "app.py", *arguments, **options)
        running.until("worker ready")
        return running

    def add(self, name: str, /, after: float = 0, **arguments: Any) -> str:
        return self.app.named(name).options(after=after).delay(**arguments).uuid

    def result(self, uuid: str) -> Any:
        return self.app.handle(uuid).result(timeout=15)

    def nap(self, name: str = "a") -> str:
        return self.add("nap", name=name, until="go")

    def go(self) -> None:
        (self.folder / "go").touch()

    def notes(self) -> list[str]:
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def state(self, uuid: str) -> str:
        return self.app.sync.get(uuid).state.value

    def alive(self) -> list[str]:
        """Return the command lines of all processes that this test has started, also indirectly."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if f"MARK={self.mark}".encode() in path.read_bytes():
                    found.append((path.parent / "cmdline").read_text().replace("\0", " "))
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    if not Path("/proc/self/environ").exists():
        pytest.skip("looks for processes in /proc")
    shop = Shop(tmp_path)
    yield shop
    shop.go()
    shop.app.shutdown()
    for running in shop.started:
        running.close()
    wait_until(lambda: shop.alive() == [])


def common_start(first: str, second: str) -> str:
    """Of two uuids: the part that is made from the time."""
    return "".join(mine for mine, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=True)))


class Console:
    """A SQLite file with tasks, and the command line in this process."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/shop.db"
        self.app = App("shop", store=self.url)
        self.app.task(self.fail)
        self.app.task(self.greet)

    def fail(self, order: int, kind: str = "ValueError") -> None:
        raise {"ValueError": ValueError, "KeyError": KeyError}[kind](f"no order {order} for 'c{order}'")

    def greet(self, name: str) -> str:
        return f"hello {name}"

    def add(self, source: str, **arguments: Any) -> str:
        return self.app.named(source).delay(**arguments).uuid

    def work(self, *uuids: str) -> None:
        with self.app.background():
            for uuid in uuids:
                wait_until(lambda uuid=uuid: self.app.handle(uuid).done())

    def state(self, uuid: str) -> str:
        return self.app.sync.get(uuid).state.value

    def invoke(self, *arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*arguments, "--store", self.url], prog_name="onthedot")
        assert result.exit_code == code, result.output
        return result

    def do(self, *arguments: str, code: int = 0) -> str:
        return self.invoke(*arguments, code=code).output

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.invoke(*arguments, "--json", code=code).stdout)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without environment variables of onthedot."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("ONTHEDOT"):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def console(folder: Path) -> Iterator[Console]:
    console = Console(folder)
    yield console
    console.app.shutdown()


@contextmanager
def empty_server(request: pytest.FixtureRequest, kind: str) -> Iterator[str]:
    """Yield the URL of an empty server or database."""
    if kind == "redis":
        with valkey.server() as own:
            yield own.url
        return
    service: Service = request.getfixturevalue("postgres")
    service.ask("CREATE DATABASE typed")
    try:
        yield service.url.rpartition("/")[0] + "/typed"
    finally:
        service.ask("DROP DATABASE typed WITH (FORCE)")


@contextmanager
def as_nobody() -> Iterator[None]:
    """As a user without rights, since root may write everything."""
    if ROOT:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if ROOT:
            os.seteuid(0)
