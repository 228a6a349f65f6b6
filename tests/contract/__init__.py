"""The conformance suite: one file per facet of the contract, the same tests over every kind of store.

A kind is a function that creates a store with a driven clock; `conftest.py` lists them. Every test runs in `exercise`,
which opens the store, runs the test and then checks, through the contract only, that the store is consistent.
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
