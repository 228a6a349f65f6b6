"""A store that has lost its data, or went back to an older state, while a worker runs on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onthedot.engine.session import DataLoss, KnownIdentity
from onthedot.operations.doctor import diagnose
from onthedot.operations.operations import Operations
from onthedot.operations.workers import live_workers
from onthedot.stores.contract import ClaimRequest, Limit, Outcome, StoreIdentity, TurnResult
from onthedot.stores.memory import MemoryStore
from tests.support.services import valkey
from tests.support.services.postgres import TABLES
from tests.support.waits import until
from tests.unit.engine.data_loss import Shop, add_long_task, assert_one_error


class ReplacedStore:
    """A memory store that can be replaced by an empty one."""

    def __init__(self, make: Callable[[], MemoryStore]) -> None:
        self._make = make
        self._store = make()

    def lose(self) -> None:
        self._store = self._make()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    match request.param:
        case "memory":
            shop = Shop("memory://")
            store = ReplacedStore(lambda: MemoryStore(shop.app.runtime.clock))
            shop.app.runtime.use_store(store)  # type: ignore[arg-type]
            shop.lose = store.lose
            yield shop
        case "sqlite":
            shop = Shop(f"sqlite:///{tmp_path}/shop.db")
            shop.lose = lambda: [path.unlink() for path in tmp_path.glob("shop.db*") if path.is_file()]
            yield shop
        case "redis":
            with valkey.server() as server:
                shop = Shop(server.url)
                shop.lose = lambda: server.ask("FLUSHALL")
                yield shop
        case _:
            import psycopg

            with request.getfixturevalue("postgres").database() as url:
                shop = Shop(url)

                def forget() -> None:
                    with psycopg.connect(url) as connection:
                        connection.execute(f"TRUNCATE {', '.join(f'onthedot.{name}' for name in TABLES)}")
                        connection.execute("UPDATE onthedot.app SET data_set = gen_random_uuid()")

                shop.lose = forget
                yield shop


async def test_worker_declares_limits_and_schedules_again_after_a_loss(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    app = shop.app
    async with app.running():
        await until(lambda: shop.ticks > 0)
        shop.lose()
        before = shop.ticks
        await until(lambda: shop.ticks >= before + 3)
        handles = await shop.single.enqueue_many([{}] * 5)
        await asyncio.gather(*handles)
        assert shop.most == 1
        (worker,) = await live_workers(app.runtime.store)
        assert worker.data_lost is not None
        (check,) = [
            each for each in await diagnose(Operations(app.runtime.store, "doctor")) if each.what == "data loss"
        ]
        assert not check.ok
        assert check.text.startswith("1 worker found ")
    assert_one_error(caplog, "has lost its data")


class RevertedStore(MemoryStore):
    """Shows lower fences than before while `behind` is set, and counts declarations."""

    behind = 0
    declarations = 0

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        turn = await super().turn(session, outcomes, request)
        if turn.claim is None or turn.claim.identity is None:
            return turn
        last_fence = turn.claim.identity.last_fence - self.behind
        identity = StoreIdentity(turn.claim.identity.id, last_fence)
        return replace(turn, claim=replace(turn.claim, identity=identity))

    async def put_limits(self, limits: Sequence[Limit], replaces: Sequence[Limit] = ()) -> bool:
        self.declarations += 1
        return await super().put_limits(limits, replaces)


async def test_worker_keeps_its_runs_if_the_store_went_back_and_knows_its_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shop = Shop("memory://")
    store = RevertedStore(shop.app.runtime.clock)
    shop.app.runtime.use_store(store)
    runs, go_on = add_long_task(shop.app)
    async with shop.app.running():
        worker = shop.app.runtime.worker
        assert worker is not None
        session = worker.session_id
        handle = await shop.app.named("long").enqueue()
        await until(lambda: runs)
        declarations = store.declarations
        store.behind = 1
        await until(lambda: store.declarations == declarations + 1)
        before = shop.ticks
        await until(lambda: shop.ticks > before)
        go_on.set()
        await handle
        assert worker.session_id == session
    assert runs == ["began"]
    assert_one_error(caplog, "went back to an older state")


def test_identity_that_stays_or_grows_is_no_loss() -> None:
    known = KnownIdentity()
    assert known.observe(StoreIdentity("a", 5)) is None
    assert known.observe(StoreIdentity("a", 5)) is None
    assert known.observe(None) is None
    assert known.observe(StoreIdentity("a", 7)) is None


def test_renewed_leases_do_not_hide_an_older_state() -> None:
    known = KnownIdentity()
    assert known.observe(StoreIdentity("a", 7), 7) is None
    assert known.observe(StoreIdentity("a", 9), 8) is None, "another worker has claimed since"
    assert known.observe(StoreIdentity("a", 9), 9) == DataLoss(StoreIdentity("a", 9), StoreIdentity("a", 8))


def test_other_identity_is_a_complete_loss_and_a_lower_fence_a_partial_one() -> None:
    known = KnownIdentity()
    known.observe(StoreIdentity("a", 7))
    assert known.observe(StoreIdentity("a", 6)) == DataLoss(StoreIdentity("a", 7), StoreIdentity("a", 6))
    assert known.observe(StoreIdentity("a", 6)) is None, "it is reported once"
    loss = known.observe(StoreIdentity("b", 9))
    assert loss is not None
    assert loss.is_complete
