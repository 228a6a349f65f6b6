"""Runs the code blocks of one page from top to bottom, in one folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.support.documents.blocks import Block
from tests.support.documents.output import matches
from tests.support.documents.snippets import END

_TIMEOUT = 60
_STARTUP = Path(__file__).with_name("startup")  # whose `sitecustomize` every program runs
_READY = re.compile(r"(worker|relay) ready|Uvicorn running")
_ENDLESS = re.compile(r"onthedot (worker|dev|outbox relay) (?!list|drain|.*--burst|.*--help)|uvicorn ")
_STOPS = {"^C": signal.SIGINT, "kill $!": signal.SIGTERM, "kill -9 $!": signal.SIGKILL}
_EXPORT = re.compile(r"export (\w+)=(\S+)")


class Command(NamedTuple):
    text: str
    output: str


class Started(NamedTuple):
    """A command that runs until the end of the page."""

    process: subprocess.Popen[str]
    log: Path
    seen: int = 0  # characters of the output that earlier blocks have shown


class PageRun:
    """A folder, an environment and the processes that the blocks of a page share.

    servers: the URLs of real servers, by the URLs that pages show.
    """

    def __init__(self, folder: Path, servers: Mapping[str, str]) -> None:
        self._folder = folder
        self._servers = servers
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith("ONTHEDOT_")}
        self._environment |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{folder}{os.pathsep}{_STARTUP}",
            "TZ": "UTC",
            "COLUMNS": "80",
            "PYTHONPYCACHEPREFIX": str(folder.parent / "bytecode"),  # shared by the pages of a test run
        }
        self._environment.pop("PYTHONUNBUFFERED", None)
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each page starts a dozen programs
        self._session: subprocess.Popen[str] | None = None
        self._started: list[Started] = []

    def __enter__(self) -> PageRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for started in reversed(self._started):
            started.process.send_signal(signal.SIGINT)
        codes = [started.process.wait(_TIMEOUT) for started in self._started]
        if self._session is not None:
            assert self._session.stdin is not None
            self._session.stdin.close()
            codes.append(self._session.wait(_TIMEOUT))
            assert self._session.stdout is not None
            self._session.stdout.close()
        if error is None:
            assert not any(codes), f"commands that run until the end of the page ended with {codes}"

    def run(self, block: Block) -> None:
        """Runs a block, or only saves it as a file if it is marked as not run."""
        text = self._with_servers(block.text)
        if block.language == "python" and block.file is not None:
            file = self._folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        if not block.runs:
            return
        if block.language == "console":
            self._expect(block, output_before_commands(text))
            for command in commands(text):
                self._run_command(block, command)
        elif block.is_program:
            self._run_program(block, text)
        else:
            self._run_snippet(block, text)

    def _with_servers(self, text: str) -> str:
        for shown, real in self._servers.items():
            text = text.replace(shown, real)
        return text

    def _run_program(self, block: Block, text: str) -> None:
        name = block.file or f"program_{block.line}.py"
        (self._folder / name).write_text(text, "utf-8")
        ran = subprocess.run(
            [sys.executable, "-W", "error", name],
            cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=_TIMEOUT, check=False,
        )  # fmt: skip
        errors = [line for line in ran.stderr.splitlines() if not line.startswith("[")]  # other lines than the log's
        assert (ran.returncode, errors) == (0, []), f"{block.name}: {ran.stdout}{ran.stderr}"
        self._check(block, ran.stdout, block.output or "")

    def _run_snippet(self, block: Block, text: str) -> None:
        if self._session is None:
            self._session = subprocess.Popen(
                [sys.executable, "-W", "error", str(Path(__file__).with_name("snippets.py"))],
                cwd=self._folder, env=self._environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,  # log lines
            )  # fmt: skip
        assert self._session.stdin is not None
        assert self._session.stdout is not None
        self._session.stdin.write(json.dumps({"name": block.name, "code": text}) + "\n")
        self._session.stdin.flush()
        lines: list[str] = []
        for line in self._session.stdout:
            if line.startswith(END):
                break
            lines.append(line)
        output = "".join(lines)
        assert line == f"{END} passed\n", f"{block.name}:\n{output}"
        if not block.is_setup:
            self._check(block, output, block.output or "")

    def _run_command(self, block: Block, command: Command) -> None:
        if exported := _EXPORT.match(command.text):
            self._environment[exported[1]] = exported[2]
            return
        if _ENDLESS.match(command.text):
            self._start(block, command)
            return
        if command.text in _STOPS:
            self._stop(block, command, _STOPS[command.text])
            return
        ran = subprocess.run(
            ["bash", "-c", command.text],
            cwd=self._folder, env=self._environment, text=True, timeout=_TIMEOUT, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        expected_code = int(block.marks.get("exit code", "0"))
        assert ran.returncode in (0, expected_code), f"{block.name}: {command.text}\n{ran.stdout}"
        if command.output:
            self._check(block, ran.stdout, command.output, command.text)

    def _stop(self, block: Block, command: Command, number: signal.Signals) -> None:
        """Ends the newest of the commands that run on."""
        self._started[-1].process.send_signal(number)
        self._expect(block, command.output)
        code = -signal.SIGKILL if number == signal.SIGKILL else 0
        assert self._started.pop().process.wait(_TIMEOUT) == code, block.name

    def _start(self, block: Block, command: Command) -> None:
        log = self._folder / f"command_{len(self._started)}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command.text.removesuffix(' &')}"],
                cwd=self._folder, env=self._environment, text=True,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._started.append(Started(process, log))
        end = time.monotonic() + _TIMEOUT
        while not _READY.search(log.read_text("utf-8")):
            assert process.poll() is None, f"{block.name}: {command.text} ended:\n{log.read_text('utf-8')}"
            assert time.monotonic() < end, f"{block.name}: {command.text} is not ready:\n{log.read_text('utf-8')}"
            time.sleep(0.02)
        self._expect(block, command.output)

    def _expect(self, block: Block, output: str) -> None:
        """Waits until the newest of the commands that run on has written these lines after the last ones."""
        if not output.strip():
            return
        started = self._started[-1]
        expected = f"…\n{output.strip()}\n…"
        end = time.monotonic() + _TIMEOUT
        while not matches(expected, written(started)):
            shown = f"{block.name}\nshows:\n{output}\nprints:\n{written(started)}"
            assert time.monotonic() < end, shown
            time.sleep(0.02)
        self._started[-1] = started._replace(seen=len(started.log.read_text("utf-8")))

    def _check(self, block: Block, output: str, expected: str, command: str = "") -> None:
        if "output varies" in block.marks:
            return
        is_shown = output == expected or (block.language == "console" and matches(expected, output))
        assert is_shown, f"{block.name} {command}\nshows:\n{expected}\nprints:\n{output}"


def written(started: Started) -> str:
    return started.log.read_text("utf-8")[started.seen :]


def output_before_commands(text: str) -> str:
    """More output of a command that runs on."""
    return re.split(r"^(?:\$ |\^C)", text, maxsplit=1, flags=re.MULTILINE)[0]


def commands(text: str) -> Iterator[Command]:
    """The commands of a console block, each with the output below it."""
    for part in re.split(r"^(?:\$ |(?=\^C$))", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        yield Command("\n".join(lines[:count]), "\n".join(lines[count:]))
