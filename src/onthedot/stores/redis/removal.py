"""Deleting an app: all keys with its prefix."""

from __future__ import annotations

import asyncio

from onthedot.errors import StoreRefused
from onthedot.stores.redis.client import RedisClient
from onthedot.stores.redis.store import prefix_of
from onthedot.stores.redis.url import parse_url


def remove_app(url: str, name: str) -> None:
    """It scans all keys of the server, a thousand at a time."""

    async def remove() -> None:
        client = RedisClient(parse_url(url))
        try:
            await client.remove_keys(prefix_of(name))
        except StoreRefused as error:
            raise StoreRefused(f"{error}; to delete an app it also needs the commands scan and unlink") from error
        finally:
            await client.close()

    asyncio.run(remove())
