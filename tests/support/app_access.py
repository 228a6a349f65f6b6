"""Direct access of tests to the store and the operations of an app, from sync code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from onthedot import App
from onthedot.operations.operations import Operations
from onthedot.stores.contract import Store

T = TypeVar("T")


def call_store(app: App[Any], work: Callable[[Store], Awaitable[T]]) -> T:
    """The result of `work`, on the event loop of the app."""
    return app.runtime.portal.run_sync(lambda client: work(client.store))


def call_operations(app: App[Any], work: Callable[[Operations], Awaitable[T]]) -> T:
    return app.runtime.portal.run_sync(lambda client: work(client.operations))


def worker_pids(app: App[Any]) -> set[int]:
    """The processes of the live workers."""
    return {worker.pid for worker in call_operations(app, lambda operations: operations.workers())}


def session_count(app: App[Any]) -> int:
    """Of workers; components, such as a relay, have sessions of their own."""
    infos = call_store(app, lambda store: store.sessions()).values()
    return sum(b'"component"' not in info for info in infos)
