"""The stores that know counters, waiting tasks and signals."""

import pytest

FLOW_STORES = ["memory", "sqlite", "redis", "postgres"]
on_each_store = pytest.mark.parametrize("app_store", FLOW_STORES, indirect=True)
