"""Listeners of the change feed that have read the store before they listen: they learn what changed in between."""

from __future__ import annotations

import pytest

from onthedot.operations.feed_listener import Watch
from onthedot.stores.contract import Limit
from tests.unit.operations.feed_shop import Shop, invalidated, of_kind, opened, uuids, waiting

PAUSED = Limit("a", paused=True, owner="operator")
OVERVIEW = Watch(transitions=False)


async def recheck(shop: Shop) -> None:
    shop.feed.recheck()
    await shop.step()


async def test_first_listener_is_reset_after_the_first_read() -> None:
    """Its view may be older than the feed, which has nothing to compare with."""
    async with opened() as shop:
        await shop.store.put_limits([PAUSED])
        listener = shop.feed.listen(OVERVIEW, has_read=True)
        assert of_kind("reset", waiting(listener)) == []
        await shop.step()
        messages = waiting(listener)
        assert of_kind("reset", messages) == [None]
        assert of_kind("counts", messages) == [{}]
        assert (await shop.store.limits())[0].paused
        for _ in range(20):
            await shop.step(250)
        assert {message.kind for message in waiting(listener)} == set()  # the first read had the limit


async def test_limit_that_changes_after_the_reset_is_reported() -> None:
    async with opened() as shop:
        listener = shop.feed.listen(OVERVIEW, has_read=True)
        while not of_kind("reset", waiting(listener)):
            await shop.step()
        await shop.store.put_limits([PAUSED])
        await recheck(shop)
        assert invalidated(waiting(listener)) == {"limits", "sources"}


@pytest.mark.parametrize(("ms", "resets"), [(0, 1), (2_900, 1), (3_100, 0)])
async def test_later_listener_is_reset_after_a_change_of_the_last_three_seconds(ms: int, resets: int) -> None:
    async with opened() as shop:
        shop.feed.listen(OVERVIEW)
        await shop.step()
        await shop.step(10_000)
        await shop.store.put_limits([PAUSED])
        await recheck(shop)
        await shop.step(ms)
        late = shop.feed.listen(OVERVIEW, has_read=True)
        assert len(of_kind("reset", waiting(late))) == resets


async def test_later_listener_is_reset_after_a_transition_of_the_last_three_seconds() -> None:
    async with opened() as shop:
        shop.feed.listen()
        await shop.step()
        await shop.step(10_000)
        quiet = shop.feed.listen(has_read=True)
        assert of_kind("reset", waiting(quiet)) == []
        await shop.add("1")
        await shop.step(100)
        late = shop.feed.listen(has_read=True)
        assert of_kind("reset", waiting(late)) == [None]


async def test_listener_after_a_long_pause_is_reset() -> None:
    async with opened() as shop:
        shop.feed.listen().close()
        await shop.step()
        await shop.step(40_000)
        late = shop.feed.listen(has_read=True)
        await shop.step()
        assert of_kind("reset", waiting(late)) == [None]


async def test_listener_that_has_read_nothing_is_not_reset() -> None:
    async with opened() as shop:
        first = shop.feed.listen()
        await shop.step()
        await shop.add("1")
        await shop.step(100)
        second = shop.feed.listen()
        assert of_kind("reset", [*waiting(first), *waiting(second)]) == []


@pytest.mark.parametrize("has_read", [False, True])
async def test_reconnected_listener_learns_which_lists_have_changed_meanwhile(has_read: bool) -> None:
    async with opened() as shop:
        shop.feed.listen(OVERVIEW)  # keeps the feed reading
        listener = shop.feed.listen()
        await shop.step()
        await shop.add("1")
        await shop.step(100)
        last_id = waiting(listener)[-1].id
        listener.close()
        await shop.step(2_000)
        await shop.store.put_limits([PAUSED])
        await recheck(shop)
        await shop.step(10_000)
        await shop.add("2")
        await shop.step(250)
        again = shop.feed.listen(last_id=last_id, has_read=has_read)
        messages = waiting(again)
        assert of_kind("reset", messages) == []
        assert uuids(messages) == ["2"]
        assert invalidated(messages) == {"limits", "sources"}


async def test_reconnected_listener_of_a_quiet_store_learns_of_a_changed_list() -> None:
    async with opened() as shop:
        shop.feed.listen(OVERVIEW)
        listener = shop.feed.listen()
        await shop.step()
        last_id = await listener.begin()
        listener.close()
        await shop.store.put_limits([PAUSED])
        await recheck(shop)
        assert invalidated(waiting(shop.feed.listen(last_id=last_id))) == {"limits", "sources"}


async def test_reconnected_listener_does_not_learn_of_older_changes() -> None:
    async with opened() as shop:
        listener = shop.feed.listen()
        await shop.step()
        await shop.store.put_limits([PAUSED])
        await recheck(shop)
        await shop.add("1")
        await shop.step(100)
        last_id = [message.id for message in waiting(listener) if message.id][-1]
        await shop.step(100)
        assert invalidated(waiting(shop.feed.listen(last_id=last_id))) == set()
