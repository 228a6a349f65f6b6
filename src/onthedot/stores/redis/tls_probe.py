"""Reads the TLS alert of a server that closes the connection."""

from __future__ import annotations

import asyncio
import ssl

from onthedot.stores.redis.tls import context
from onthedot.stores.redis.url import RedisAddress


async def read_alert(address: RedisAddress, patience: float) -> ssl.SSLError | None:
    """Connect and send nothing.

    A server that requires a client certificate sends its alert after the handshake and closes. If it has unread data
    then, its system resets the connection, and the alert is lost.
    """
    host, port = address.hosts[0]
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection(host, port, ssl=context(address))
            try:
                await reader.read(1)
            finally:
                writer.transport.abort()
    except ssl.SSLError as error:
        return error
    except (OSError, TimeoutError):
        pass
    return None
