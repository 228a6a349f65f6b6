"""The kinds of stores, and the fixtures that create them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, wraps
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store, StoreTraits
from onthedot.stores.memory import MemoryStore
from onthedot.stores.redis import RedisStore
from onthedot.stores.sqlite import SqliteStore
from tests.contract import MakeStore, exercise
from tests.contract.steps import Worker
from tests.faults import LONG
from tests.model.naive import NaiveStore
from tests.support.memory_disk import memory_folder
from tests.support.services import valkey
from tests.support.services.postgres import KeptStore


class Awaited:
    """The naive store with async methods: the suite also tests the model that the stores are compared with."""

    traits = StoreTraits(shared=False, synchronous=True, cancel_safe=True)

    def __init__(self, clock: ManualClock) -> None:
        self._naive = NaiveStore(clock)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            return getattr(self._naive, verb)(*args, **options)

        return call

    def earliest_now(self) -> float:
        return self._naive.earliest_now()

    async def open(self) -> None: ...
    async def close(self) -> None: ...


FILES = memory_folder("contract-")  # deleted at the end of the run
NUMBERS = count()
STORES: dict[str, MakeStore] = {
    "memory": MemoryStore,
    "naive": lambda clock: cast("Store", Awaited(clock)),
    "sqlite": lambda clock: SqliteStore(Path(FILES.name, f"{next(NUMBERS)}.db"), clock),
    "redis": lambda clock: RedisStore(valkey.url(), clock, valkey.new_name()),
    "limited": lambda clock: RedisStore(valkey.limited_url(), clock, valkey.new_name()),  # a user with minimal rights
}
SERVERS = ("postgres", "pooled")  # started by fixtures; pooled: as a role with minimal rights, through PgBouncer
EVENTS = ("outbox", "event_log", "resume_handles")
WITHOUT = {
    "naive": (
        "capabilities",
        "batch_bounds",
        "hints",
        "subscribe",
        "changes",
        "handoff_offer",
        "identity",
        "undecodable",
        "claim_entries",
        "flow_retention",
        "series",
        *EVENTS,
    ),
    "memory": ("undecodable", "claim_entries"),  # it keeps objects, which are always readable
    **dict.fromkeys(("redis", "limited"), EVENTS),  # a cache of tasks has no transaction of the user to join
}  # facets that a kind does not implement
VERSIONED = (
    "add",
    "claim_repeat",
    "hints",
    "settle",
)  # facets that use most of a driver run on every Python
ONLY = {  # other connections to a store that is tested in full: these facets, unless ONTHEDOT_FAULTS=long
    "limited": ("hints", "notes", "schedules", "series"),
    "pooled": ("hints", "notes", "series", "settle", *EVENTS),
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def _is_same_on_every_python(kind: str, facet: str) -> bool:
    """Whether the verbs run inside a server, so that the Python version does not matter."""
    return kind in ONLY or (kind in ("redis", *SERVERS) and facet not in VERSIONED)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" not in metafunc.fixturenames:  # tests of buses
        return
    facet = metafunc.module.__name__.rpartition("test_")[2]
    kinds = [
        pytest.param(kind, marks=[pytest.mark.once] if _is_same_on_every_python(kind, facet) else [])
        for kind in (*STORES, *SERVERS)
        if facet not in WITHOUT.get(kind, ()) and (LONG or facet in ONLY.get(kind, (facet,)))
    ]
    metafunc.parametrize("store", kinds, indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Store]:
    if request.param in SERVERS:
        service = request.getfixturevalue(request.param)
        app = service.new_app()
        yield service.store(clock, app)
        service.clean(app)
        return
    store = STORES[request.param](clock)
    yield store
    if isinstance(store, RedisStore):
        valkey.forget(store.prefix)
        assert valkey.connections() == [], "a connection is left"


@pytest.fixture
def worker(store: Store) -> Worker:
    """A session; tests begin with `await worker.heartbeat()`, unless they are about a missing heartbeat."""
    return Worker(store, "w1")


@pytest.fixture
def other(store: Store) -> Worker:
    return Worker(store, "w2")


@pytest.fixture(autouse=True)
def exercised(request: pytest.FixtureRequest, store: Store) -> None:
    """Every test runs inside `exercise`, in the event loop of the test."""
    test = request.node.obj

    @wraps(test)
    async def run(**arguments: Any) -> None:
        await exercise(store, partial(test, **arguments))

    @wraps(test)
    def run_on_shared_loop(**arguments: Any) -> None:
        request.getfixturevalue(request.node.callspec.params["store"]).runner.run(run(**arguments))

    request.node.obj = run_on_shared_loop if isinstance(store, KeptStore) else run
