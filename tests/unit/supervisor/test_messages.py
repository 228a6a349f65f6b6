"""Messages between a supervisor and a worker process."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

import msgspec

from onthedot.supervisor.messages import ParentChannel, SupervisorMessage, WorkerReport

LEASE = 30_000  # ms


def test_messages_arrive_complete_in_any_pieces_and_after_a_pause() -> None:
    ours, theirs = socket.socketpair()
    answers: list[tuple[bool, Sequence[str]]] = []
    with ours:
        channel = ParentChannel(theirs.detach())
        channel.store = lambda: ("redis://cache", "shop")
        channel.keep("w", b"x" * 500_000, LEASE, lambda _, alive, cancel: answers.append((alive, cancel)))
        for number in range(100):
            channel.send(WorkerReport(turns=number))
        received = b""
        while b'"turns":99' not in received:
            received += ours.recv(65_536)
            channel.send(WorkerReport())  # what could not be sent before goes with the next report
        first = msgspec.json.decode(received.splitlines()[0], type=WorkerReport).session
        assert first is not None
        assert (first.name, len(first.info), first.store, first.app) == ("w", 500_000, "redis://cache", "shop")
        message = msgspec.json.encode(SupervisorMessage(session="w", sent=time.monotonic(), cancel=("u1",))) + b"\n"
        ours.sendall(message[:10])
        assert channel.look()
        ours.sendall(message[10:] + msgspec.json.encode(SupervisorMessage(session="other", alive=False)) + b"\n")
        assert channel.look()
        assert answers == [(True, ("u1",))]
        ours.shutdown(socket.SHUT_WR)
        assert not channel.look()
        channel.close()
