"""What a server says with TLS before it hangs up."""

from __future__ import annotations

import asyncio
import ssl

from onthedot.stores.redis.tls import context
from onthedot.stores.redis.url import RedisAddress


async def read_alert(address: RedisAddress, patience: float) -> ssl.SSLError | None:
    """Listens without a word.

    A server that wants a certificate of ours says so behind the handshake, and closes; if it has not read then what we
    have sent, its system resets the connection, and what it said is lost.
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
