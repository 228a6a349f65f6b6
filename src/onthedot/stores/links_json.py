"""Links and waits as JSON text, as SQL stores keep them. Tasks of one group share them, so both ways are cached."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from onthedot.stores.contract import Links, Wait

_MOST = 10_000


@lru_cache(_MOST)
def links_text(links: Links) -> str:
    return msgspec.json.encode(links).decode()


@lru_cache(_MOST)
def links_of(text: str) -> Links:
    return msgspec.json.decode(text, type=Links)


def wait_text(wait: Wait) -> str:
    return msgspec.json.encode(wait).decode()


def wait_of(text: str) -> Wait:
    return msgspec.json.decode(text, type=Wait)
