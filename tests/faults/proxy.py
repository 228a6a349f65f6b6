"""A TCP proxy between workers and their store whose connections can be cut or go silent."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Forwards connections to a port of this machine, with one thread per direction."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._silent: list[tuple[socket.socket, socket.socket]] = []  # half-open: nothing is forwarded or closed
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    pair = (client, socket.create_connection(("127.0.0.1", self._target)))
                except OSError:  # the server is down
                    client.close()
                    continue
                with self._lock:
                    self._pairs.append(pair)
                for one, other in (pair, pair[::-1]):
                    threading.Thread(target=self._forward, args=(one, other, pair), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                if pair in self._silent:
                    return
                other.sendall(data)
        if pair not in self._silent:
            self._close([pair])

    def _close(self, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
        for pair in pairs:
            with self._lock:
                if pair in self._pairs:
                    self._pairs.remove(pair)
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    @property
    def connections(self) -> int:
        return len(self._pairs)

    def cut(self) -> int:
        """Closes all connections at both ends. New ones are accepted."""
        pairs = list(self._pairs)
        self._close(pairs)
        return len(pairs)

    def go_silent(self) -> None:
        """Stops forwarding without closing, as if the other end had lost its power."""
        with self._lock:
            self._silent += self._pairs
            self._pairs = []

    def close(self) -> None:
        self._listener.close()
        self._close(list(self._pairs))
        self._close(self._silent)


@contextlib.contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    link = Proxy(port)
    try:
        yield link
    finally:
        link.close()
