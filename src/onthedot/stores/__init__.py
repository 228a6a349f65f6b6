"""Stores: where tasks are. ``contract.py`` says what each of them does."""

from __future__ import annotations

from onthedot.clock import Clock
from onthedot.errors import StoreRefused
from onthedot.stores.contract import Store


def connect(url: str, clock: Clock) -> Store:
    """The store behind a URL; its driver is imported only now."""
    scheme = url.partition("://")[0]
    if scheme == "memory":
        from onthedot.stores.memory import MemoryStore

        return MemoryStore(clock)
    raise StoreRefused(f"{scheme}:// is not built yet in this version; App(store='memory://') works today")
