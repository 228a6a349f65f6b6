"""Programs with a Prefect flow, in the environment of Prefect, against the real server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.process_guard import start_guarded
from tests.support.processes import lives
from tests.support.services.prefect import PrefectServer
from tests.support.services.prefect_environment import settings
from tests.support.source_files import ROOT
from tests.support.waits import wait_until

PROGRAM = ROOT / "tests" / "support" / "programs" / "prefect_flow.py"
PATIENCE = 90.0  # seconds: Prefect alone needs five to import


class Note(NamedTuple):
    """A line of the program's log."""

    at: float
    pid: int
    what: str
    value: Any


class FlowProgram:
    """folder: has the log and the files that complete handles"""

    def __init__(self, server: PrefectServer, folder: Path, process: subprocess.Popen[Any]) -> None:
        self.server = server
        self.folder = folder
        self.process = process

    def notes(self, what: str) -> list[Note]:
        file = self.folder / "log"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        found = [Note(**json.loads(line)) for line in lines if line.endswith("\n")]
        return [note for note in found if note.what == what]

    def wait_for_notes(self, what: str, count: int = 1) -> Note:
        """Returns the last of them."""

        def have_come() -> bool:
            assert len(self.notes(what)) >= count or self.process.poll() is None, self.output()
            return len(self.notes(what)) >= count

        wait_until(have_come, PATIENCE)
        return self.notes(what)[-1]

    @property
    def run(self) -> str:
        """The id of the first flow run."""
        return str(self.notes("run")[0].value).removeprefix("prefect:")

    def state(self, run: str | None = None) -> str:
        status, found = self.server.request("GET", f"/flow_runs/{run or self.run}")
        assert status == 200
        return str(found["state"]["type"])

    def states(self) -> list[str]:
        """All that the run has had."""
        found = self.server.request("GET", f"/flow_run_states/?flow_run_id={self.run}")[1]
        return [state["type"] for state in sorted(found, key=lambda state: state["timestamp"])]

    def complete(self, key: str, value: object = "done") -> None:
        part = self.folder / f"{key}.part"
        part.write_text(json.dumps(value))
        part.rename(self.folder / key)

    def resume(self, run: str | None = None) -> str:
        """As the task of a worker does it."""
        status, answer = self.server.request("POST", f"/flow_runs/{run or self.run}/resume")
        assert status in (200, 201)
        return str(answer["status"])

    def results(self) -> list[Any]:
        return [note.value for note in self.notes("result")]

    def wait_for_end(self) -> int:
        return self.process.wait(PATIENCE)

    def wait_for_end_of(self, pid: int) -> None:
        wait_until(lambda: not lives(pid), PATIENCE)

    def output(self) -> str:
        return (self.folder / "output").read_text("utf-8", "replace")


@contextmanager
def flow_program(
    server: PrefectServer, folder: Path, *arguments: str, port: int | None = None, **more: str
) -> Iterator[FlowProgram]:
    """arguments: of the program, after the folder. port: of a proxy. more: settings"""
    command, *others = arguments
    api = f"http://127.0.0.1:{port or server.port}/api"
    home = folder / "home"
    home.mkdir()
    environment = settings(home, PREFECT_API_URL=api, PYTHONPATH=str(ROOT / "src"), **more)
    with (folder / "output").open("wb") as output:
        process = start_guarded(
            [str(server.environment.python), str(PROGRAM), command, str(folder), *others],
            env=environment, cwd=folder, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield FlowProgram(server, folder, process)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
