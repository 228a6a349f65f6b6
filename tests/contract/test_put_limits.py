"""Storing limits, compared with those that are stored."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onthedot.stores.contract import Limit, Store

MISSING = Limit("a", owner="operator")
PAUSED = Limit("a", paused=True, reason="deploy", owner="operator", paused_since=1_000)
FULL = Limit(
    "a/*", cap=3, rate=1.5, burst=4, paused=True, reason="déploi", owner="operator", paused_since=7, mode="frozen"
)
LANE = Limit("@shared", cap=2, lane_rule=b"{}")


async def test_limit_is_stored_if_none_was_there(store: Store) -> None:
    assert await store.put_limits([PAUSED], replaces=[MISSING])
    assert [*await store.limits()] == [PAUSED]


async def test_limit_that_was_stored_meanwhile_is_kept(store: Store) -> None:
    await store.put_limits([PAUSED])
    assert not await store.put_limits([Limit("a", cap=3, owner="operator")], replaces=[MISSING])
    assert [*await store.limits()] == [PAUSED]


@pytest.mark.parametrize("stored", [PAUSED, FULL, LANE, Limit("a", rate=0.1, burst=2.5), Limit("a", cap=0)])
async def test_limit_is_replaced_by_the_one_that_was_read(store: Store, stored: Limit) -> None:
    """Each field is equal when it was stored and read."""
    await store.put_limits([stored])
    (read,) = await store.limits()
    cleared = Limit(stored.name, owner=stored.owner)
    assert await store.put_limits([cleared], replaces=[read])
    assert not await store.put_limits([stored], replaces=[read])
    assert [*await store.limits()] == [cleared]
    assert await store.put_limits([stored], replaces=[cleared])


@pytest.mark.parametrize(
    "change",
    [
        {"cap": 4},
        {"cap": None},
        {"rate": 2.0},
        {"burst": 5.0},
        {"paused": False},
        {"reason": "deploi"},
        {"paused_since": 8},
        {"paused_since": None},
        {"lane_rule": b"{}"},
        {"mode": ""},
    ],
)
async def test_each_field_is_compared(store: Store, change: dict[str, Any]) -> None:
    await store.put_limits([FULL])
    assert not await store.put_limits([MISSING], replaces=[replace(FULL, **change)])
    assert [*await store.limits()] == [FULL]


async def test_one_difference_keeps_all_limits(store: Store) -> None:
    code = Limit("b", cap=2)
    await store.put_limits([PAUSED, code])
    changes = [Limit("a", cap=9, owner="operator"), Limit("b", cap=9)]
    assert not await store.put_limits(changes, replaces=[PAUSED, Limit("b", cap=3)])
    assert sorted(await store.limits(), key=lambda limit: limit.name) == [PAUSED, code]
    assert await store.put_limits(changes, replaces=[PAUSED, code])
    assert sorted(await store.limits(), key=lambda limit: limit.name) == changes


async def test_owners_are_compared_apart(store: Store) -> None:
    await store.put_limits([Limit("a", cap=2)])
    assert await store.put_limits([PAUSED], replaces=[MISSING])
    assert not await store.put_limits([Limit("a", cap=5)], replaces=[Limit("a")])
