"""Whose tasks a server has."""

from __future__ import annotations

import asyncio
import re

from onthedot.errors import StoreRefused
from onthedot.stores.redis.client import PATIENCE, Client
from onthedot.stores.redis.faults import explained
from onthedot.stores.redis.url import place_of

_NAME = re.compile(rb"onthedot:\{(.*)\}:count\Z")


def apps_in(url: str) -> list[str]:
    """Those that have ever added anything there. Other programs may have very many keys: it looks for a while only."""
    return asyncio.run(_apps_in(url))


async def _apps_in(url: str) -> list[str]:
    place = place_of(url)
    client = Client(place)
    try:
        async with asyncio.timeout(PATIENCE):
            found = [_NAME.match(key) async for key in client.keys("onthedot:{*}:count")]
    except Exception as error:
        if "NOPERM" in str(error) or "no permissions" in str(error):
            raise StoreRefused(f"{place.shown}: this user may not see which apps there are: say which by -n") from error
        raise explained(error, place.shown) from error
    finally:
        await client.close()
    return sorted(each[1].decode() for each in found if each)
