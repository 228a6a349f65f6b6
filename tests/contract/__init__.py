"""What every store must do, one file a facet: the same tests over every kind of store.

A kind is a function that makes a store over a clock which the tests turn; `conftest.py` lists them. `exercise` is the
one way in: it opens the store, runs a test and then looks, through the contract only, whether the store still agrees
with itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from tests.contract.invariants import check

MakeStore = Callable[[ManualClock], Store]


async def exercise(store: Store, test: Callable[[], Awaitable[None]]) -> None:
    await store.open()
    try:
        await test()
        await check(store)
    finally:
        await store.close()
