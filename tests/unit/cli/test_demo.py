"""The help of the command line, and the demo: in a pipe, on a terminal, without rich, interrupted."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest
from click.testing import CliRunner

from onthedot.cli import main
from onthedot.cli.demo import STEPS, check
from tests.support.waits import SOON

pty = pytest.importorskip("pty", reason="no terminals here")

FAST = ["demo", "--speed", "20"]
TITLES = [
    "1 Now and later", "2 Overtaking", "3 Retries", "4 Limits", "5 Progress", "6 A failure looked at",
    "7 And run again", "8 A crash survived", "9 A schedule", "That was it",
]  # fmt: skip
WITHOUT_RICH = "import sys; sys.modules['rich'] = None; from onthedot.cli import main; main(prog_name='onthedot')"


def start(*arguments: str, program: str = "", **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", *(["-c", program] if program else ["-m", "onthedot"]), *arguments]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **options.pop("env", {})}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(command, env=environment, text=True, encoding="utf-8", errors="replace", **pipes)


def run(*arguments: str, **options: Any) -> tuple[int, str, str]:
    with start(*arguments, **options) as process:
        out, err = process.communicate(timeout=50)
        return process.returncode, out, err


class Terminal:
    """A program at a pseudo-terminal."""

    def __init__(self, *arguments: str, **options: Any) -> None:
        self._ours, theirs = pty.openpty()
        self.process = start(*arguments, stdout=theirs, stderr=theirs, stdin=theirs, **options)
        os.close(theirs)
        self.text = ""

    def read(self, until: str | None = None) -> str:
        deadline = time.monotonic() + 50
        while until is None or until not in self.text:
            assert select.select([self._ours], [], [], max(0, deadline - time.monotonic()))[0], self.text
            try:
                data = os.read(self._ours, 65_536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            self.text += data.decode("utf-8", "replace")
        return self.text

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_lists_the_commands(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments, prog_name="onthedot")
    assert "Usage: onthedot [OPTIONS] COMMAND" in result.output
    assert "Tasks that run on time." in result.output
    assert re.search(r"^  demo +A tour", result.output, re.MULTILINE)


def test_demo_has_a_help() -> None:
    result = CliRunner().invoke(main, ["demo", "--help"], prog_name="onthedot")
    assert result.exit_code == 0
    assert "--speed" in result.output


def test_version_is_printed() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"onthedot (\d+\.\d+\.\d+\S*|\(from its source, not installed\))\n", result.output)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["dmo"], "No such command 'dmo'"),
        (["demo", "--speed", "0"], "0.1<=x<=100"),
        (["demo", "x"], "unexpected extra"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert text in result.output


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_command_is_imported_when_it_is_called(argument: str) -> None:
    program = (
        "import sys; from onthedot.cli import main\n"
        f"main(['{argument}'], standalone_mode=False)\n"
        "print('loaded', [name for name in ('onthedot.cli.demo', 'rich') if name in sys.modules])"
    )
    assert run(program=program)[1].endswith("loaded []\n")


def test_demo_prints_plain_text_in_a_pipe() -> None:
    code, out, err = run(*FAST)
    assert (code, err) == (0, "")
    assert re.findall(r"^== (.*)$", out, re.MULTILINE) == TITLES
    assert "\x1b" not in out
    assert "[" + "dim]" not in out
    assert max(map(len, out.splitlines())) <= 80
    for line in (
        "  ✓ Bob was not early, and ",
        "  ✓ acme never had more than two at once",
        "tasks succeeded, none was lost",
    ):
        assert line in out
    assert out.index("baking a birthday cake") < out.index("baking bread")


@pytest.mark.parametrize("rich", [True, False])
def test_demo_runs_at_a_terminal(terminals: list[Terminal], rich: bool) -> None:
    if rich:
        pytest.importorskip("rich")
    terminals.append(Terminal(*FAST, program="" if rich else WITHOUT_RICH))
    text = terminals[-1].read()
    assert terminals[-1].process.wait(SOON) == 0
    assert ("\x1b[" in text) == rich
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert all(title in plain for title in TITLES)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is shown again


def test_page_that_was_opened_at_a_terminal_stays_until_ctrl_c(terminals: list[Terminal]) -> None:
    terminals.append(Terminal("demo", "--speed", "10"))
    address = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminals[-1].read(until="1 Now and later"))
    found = re.search(r"page http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})\r?\n", address)
    assert found is not None, address
    with closing(HTTPConnection("127.0.0.1", int(found[1]))) as connection:
        connection.request("GET", "/api/v1/status", headers={"Authorization": f"Bearer {found[2]}"})
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["app"]) == (200, "demo")
    terminals[-1].read(until="Ctrl+C ends it.")
    terminals[-1].process.send_signal(signal.SIGINT)
    assert "Traceback" not in terminals[-1].read()
    assert terminals[-1].process.wait(SOON) == 0


def test_demo_runs_on_an_ascii_terminal() -> None:
    code, out, err = run(*FAST, env={"PYTHONIOENCODING": "latin-1"})
    assert (code, err) == (0, "")
    assert "? both results are back" in out


@pytest.mark.parametrize("at", ["hello Ann", "attempt 1", "4 Limits", "8 A crash survived", "9 A schedule"])
def test_ctrl_c_ends_the_demo_cleanly(terminals: list[Terminal], at: str) -> None:
    terminals.append(Terminal("demo", "--speed", "4"))
    terminals[-1].read(until=at)
    terminals[-1].process.send_signal(signal.SIGINT)
    text = terminals[-1].read()
    assert terminals[-1].process.wait(SOON) == 130
    assert text.rstrip().endswith("Stopped; nothing is left behind.")
    assert "Traceback" not in text


def test_closed_pipe_prints_no_traceback() -> None:
    with start(*FAST) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(50) == 1


def test_demo_runs_twice_in_one_process() -> None:
    for _ in range(2):
        result = CliRunner().invoke(main, ["demo", "--speed", "10"])  # faster, a pause of 10 ms would make claims wrong
        assert (result.exit_code, result.exception) == (0, None)


def test_demo_fails_if_a_claim_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError, match="not so: pigs fly"):
        check(len("pig") == 4, "pigs fly")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("step", [step for step, _ in STEPS])
def test_each_step_of_the_demo_has_a_description(step: Any) -> None:
    assert re.fullmatch(r"[A-Z].{20,76}\.", step.__doc__)
