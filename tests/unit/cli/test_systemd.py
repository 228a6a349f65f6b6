"""Messages to systemd, received by a real datagram socket."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from onthedot.supervisor.service_manager import ServiceManager
from tests.support.waits import SOON
from tests.unit.cli.conftest import Shop

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform == "win32", reason="systemd is of Linux")]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(SOON)
        yield receiver


def received(receiver: socket.socket, line: str) -> list[str]:
    """The messages up to the one that has this line."""
    messages: list[str] = []
    while not messages or line not in messages[-1].splitlines():
        messages.append(receiver.recv(4096).decode())
    return messages


def test_worker_reports_to_systemd(shop: Shop, receiver: socket.socket) -> None:
    """Readiness, a watchdog that is fed twice per period, and the stop; tasks do not see the socket."""
    os.environ.update(NOTIFY_SOCKET=receiver.getsockname(), WATCHDOG_USEC="1000000")
    try:
        worker = shop.worker()
    finally:
        del os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"]
    ready = received(receiver, "READY=1")[-1]
    assert "STATUS=worker ready · shop" in ready
    for _ in range(2):
        received(receiver, "WATCHDOG=1")
    children = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children").read_text().split()
    for child in children:
        assert b"NOTIFY_SOCKET" not in Path(f"/proc/{child}/environ").read_bytes()
    worker.tell(signal.SIGTERM)
    received(receiver, "STOPPING=1")
    assert worker.ended() == 0


def test_service_manager_takes_its_variables_and_ignores_those_of_others(receiver: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": receiver.getsockname(), "WATCHDOG_USEC": "10000", "WATCHDOG_PID": "1", "HOME": "/"}
    manager = ServiceManager.from_environment(environment)
    assert environment == {"HOME": "/"}

    async def main() -> None:
        async with manager.watchdog():  # it is meant for process 1
            await asyncio.sleep(0)
            manager.send("READY=1")

    asyncio.run(main())
    assert receiver.recv(100) == b"READY=1"
    ServiceManager.from_environment({}).send("READY=1")  # without systemd


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are of Linux")
def test_address_with_an_at_sign_is_abstract() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")  # the system chooses an abstract name
        name = receiver.getsockname()
        receiver.settimeout(SOON)
        ServiceManager(f"@{name[1:].decode()}").send("READY=1")
        assert receiver.recv(100) == b"READY=1"


async def test_systemd_that_does_not_listen_is_one_warning(
    receiver: socket.socket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "onthedot.scheduler")
    address = str(tmp_path / "later")
    manager = ServiceManager(address, interval=0.001)
    manager.send("READY=1")
    async with manager.watchdog():
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as late:
            await asyncio.sleep(0)  # the first message of the watchdog fails, too
            late.bind(address)
            late.setblocking(False)
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(late, 100), SOON) == b"WATCHDOG=1"
    (line,) = caplog.messages
    assert line.startswith("[systemd] gets no messages: ")


async def test_message_is_sent_later_if_the_socket_is_full(receiver: socket.socket) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.connect(receiver.getsockname())
        other.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                other.send(b"from another service")
        ServiceManager(receiver.getsockname()).send("READY=1")
        await asyncio.to_thread(received, receiver, "READY=1")


@pytest.mark.parametrize("value", ["", "soon", "-1", "1e6"])
def test_watchdog_time_that_is_no_number_is_a_warning(value: str, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager.from_environment({"NOTIFY_SOCKET": "/run/none", "WATCHDOG_USEC": value})
    (line,) = caplog.messages
    assert line.startswith("[systemd] WATCHDOG_USEC is no number")
