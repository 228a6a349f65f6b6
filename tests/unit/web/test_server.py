"""The socket of the web server."""

from __future__ import annotations

import socket

from onthedot.web.server import listen


def test_connections_send_small_answers_at_once() -> None:
    """Otherwise the body of an answer waits up to 40 ms for the browser to acknowledge its head."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()[:2]):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
