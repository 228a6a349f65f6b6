"""Starts a real Prefect server, in its own environment. No pytest in here."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.services import server_guard
from tests.support.services.ports import free_port
from tests.support.services.prefect_environment import PrefectEnvironment, database_setting, settings
from tests.support.services.programs import Missing
from tests.support.waits import SOON

PATIENCE = 120.0  # seconds for a start: 8 s on a quiet machine
TRIES = 3  # another program may take the free port first


class PrefectServer:
    """On a loopback port, with its own copy of the database. It ends with the test run in every case."""

    def __init__(self, found: PrefectEnvironment, folder: Path) -> None:
        self.environment = found
        self.folder = folder
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        self.environment.copy_database(self.folder / "prefect.db")
        for _ in range(TRIES):
            self.port = free_port()
            if self.start():
                return
        raise Missing(f"the Prefect server does not start: {self._log()[-400:]}")

    def start(self) -> bool:
        """Starts it, on the port that it had before; False: it ended at once."""
        program = [str(self.environment.python), "-m", "prefect", "server", "start"]
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, server_guard.__file__, *program, *address],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder,
                env=settings(self.folder, **database_setting(self.folder / "prefect.db")),
            )  # fmt: skip
        return self._is_ready(self._process)

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None:
            with suppress(OSError, http.client.HTTPException):
                if self.request("GET", "/health")[0] == http.HTTPStatus.OK:
                    return True
            if time.monotonic() > deadline:
                self.stop()
                raise Missing(f"the Prefect server was not ready within {PATIENCE:g} s: {self._log()[-400:]}")
            time.sleep(0.05)
        self.stop()
        return False

    def stop(self) -> None:
        """Without losing what it has stored."""
        process = self._process
        self._process = None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()

    @property
    def api(self) -> str:
        """The value of PREFECT_API_URL."""
        return f"http://127.0.0.1:{self.port}/api"

    def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the answer, decoded. 503, while the database is locked, is repeated. path: below /api"""
        deadline = time.monotonic() + SOON
        while True:
            status, answer = self._request(method, path, body)
            if status != http.HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                return status, answer
            time.sleep(0.05)

    def _request(self, method: str, path: str, body: object) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, f"/api{path}", sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def _log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")
