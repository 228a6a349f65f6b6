"""How links and waits are packed: as msgpack arrays, whose fields the scripts know (`lua/lib/record_format.lua`)."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

from onthedot.stores.contract import Links, Wait

_MAX_LINKS = 10_000  # remembered; the tasks of a group share theirs


class PackedWait(msgspec.Struct, array_like=True, frozen=True, gc=False):
    counters: tuple[tuple[str, int], ...]
    timeout: int | None
    delay: int
    requires: Literal["success", "any", "failure"]


class PackedLinks(msgspec.Struct, array_like=True, frozen=True, gc=False):
    flow: str | None
    increments: tuple[str, ...]
    waits: PackedWait | None


_decode_links = msgspec.msgpack.Decoder(PackedLinks).decode


def pack_wait(wait: Wait) -> PackedWait:
    return PackedWait(wait.counters, wait.timeout, wait.delay, wait.requires)


def to_wait(packed: PackedWait) -> Wait:
    return Wait(packed.counters, packed.timeout, packed.delay, packed.requires)


def pack_links(links: Links) -> PackedLinks:
    return PackedLinks(links.flow, links.increments, None if links.waits is None else pack_wait(links.waits))


@lru_cache(_MAX_LINKS)
def to_links(packed: bytes) -> Links:
    links = _decode_links(packed)
    return Links(links.flow, links.increments, None if links.waits is None else to_wait(links.waits))
