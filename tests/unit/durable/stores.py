"""The stores that know counters, waiting tasks and signals."""

import pytest

FLOW_STORES = ["memory", "sqlite", "redis", "postgres"]
on_each_store = pytest.mark.parametrize("app_store", FLOW_STORES, indirect=True)

SHARED_STORES = [pytest.param(kind, marks=pytest.mark.once) for kind in ("sqlite", "redis", "postgres")]
on_each_shared_store = pytest.mark.parametrize("app_store", SHARED_STORES, indirect=True)
"""The stores that several processes share."""
