"""The table of URL schemes, and the refusal of optional abilities."""

from __future__ import annotations

from pathlib import Path

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreRefused
from onthedot.stores import connect
from onthedot.stores.capabilities import HasServerInfo, SyncTransactions, capability, find_capability
from onthedot.stores.memory import MemoryStore
from onthedot.stores.schemes import SCHEMES, check_schema, driver_of, file_of, file_url, has_schema, rights_text


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(StoreRefused, match="mongo:// is no store of this version"):
        connect("mongo://host", ManualClock())


def test_every_scheme_is_listed_once() -> None:
    names = [name for scheme in SCHEMES for name in scheme.names]
    assert len(names) == len(set(names))


def test_a_file_has_the_same_url_and_path() -> None:
    path = Path("/tmp/a shop.db")
    assert file_of(file_url(path)) == path
    assert file_of("redis://host") is None


def test_a_store_without_schema_or_users_has_none_to_print() -> None:
    assert [has_schema(url) for url in ("memory://", "sqlite:///a.db", "redis://", "postgresql://")] == [
        False,
        True,
        False,
        True,
    ]
    assert rights_text("sqlite:///a.db", "shop", "") is None
    with pytest.raises(StoreRefused, match="redis:// has no schema"):
        check_schema("redis://host")


def test_a_driver_is_named_with_the_extra_that_installs_it() -> None:
    assert driver_of("memory://") is None
    assert driver_of("rediss://host") == ("redis", "redis")
    assert driver_of("postgres://host") == ("asyncpg", "postgres")


def test_a_missing_capability_is_refused_by_the_verb_and_names_the_stores_that_have_it() -> None:
    store = MemoryStore(ManualClock())
    assert find_capability(store, HasServerInfo) is None
    with pytest.raises(StoreRefused, match=r"^verb: .*redis:// have no .*; sqlite:/// and postgresql:// do"):
        capability(store, SyncTransactions, "verb")
