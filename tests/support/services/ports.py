"""Ports for servers of the tests."""

from __future__ import annotations

import socket
from contextlib import suppress
from secrets import randbelow

_FIRST = 20_000
_COUNT = 12_000  # below those that Linux gives to connections


def free_port() -> int:
    """No connection takes it before a server does, as one may take a port that the system names."""
    while True:
        port = _FIRST + randbelow(_COUNT)  # not by `random`, which a test may seed
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
