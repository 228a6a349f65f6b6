"""Scripts that run from a file in their own process, as users run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.support.leak_check import descendants
from tests.support.waits import SOON, wait_until


class Script:
    """A script in its own folder. It prints one JSON value per line."""

    def __init__(self, folder: Path, text: str) -> None:
        self.path = folder / "script.py"
        self.path.write_text(HEAD + dedent(text))

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, str(self.path), *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=self.path.parent) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *arguments: str) -> list[Any]:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=SOON)
        assert process.returncode == 0, err
        assert "Traceback" not in err, err
        return [json.loads(line) for line in out.splitlines()]


HEAD = """\
import json, logging, multiprocessing, os, signal, sys, threading, time
from pathlib import Path
from onthedot import App, IntervalSchedule, current_task

def say(value):
    print(json.dumps(value), flush=True)

"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Script]:
    return lambda text: Script(tmp_path, text)


@pytest.fixture
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="c-") as folder:  # other test runs use the shared folder
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield
        wait_until(lambda: not ours())
        wait_until(lambda: not list(Path(folder).glob("onthedot-*")))


def ours() -> list[str]:
    return [name for name in descendants(os.getpid()).values() if "onthedot" in name or "script.py" in name]
