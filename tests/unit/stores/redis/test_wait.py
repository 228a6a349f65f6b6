"""``?wait=1``: an add survives the master, or the caller gets an error."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from onthedot.errors import StoreRefused, StoreUnavailable
from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import ClaimRequest, NewTask, SlotPool
from onthedot.stores.redis import client
from onthedot.stores.redis.acl import rights_text
from onthedot.stores.redis.url import parse_url
from tests.support.services import valkey, versions
from tests.support.services.programs import Missing, give_up
from tests.support.waits import wait_until
from tests.unit.stores.redis.test_errors import opened

pytestmark = pytest.mark.fault


class Pair(NamedTuple):
    master: valkey.Server
    replica: valkey.Server

    @property
    def url(self) -> str:
        return f"{self.master.url}?wait=1"

    @contextmanager
    def replica_stopped(self) -> Iterator[None]:
        pid = self.replica.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


BOTH = pytest.mark.parametrize("pair", ["wheel", "debian"], indirect=True)
"""WAIT differs between versions: newer ones count only writes of the same connection."""


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    kind: str = getattr(request, "param", "wheel")
    try:
        runs = None if kind == "wheel" else versions.redis(kind)
    except Missing as why:
        give_up(why)
    with (
        valkey.server("--repl-diskless-sync-delay", "0", runs=runs) as master,
        valkey.server("--replicaof", "127.0.0.1", str(master.port), runs=runs) as replica,
    ):
        wait_until(lambda: "state=online" in master.text("INFO", "replication"), timeout=30)
        yield Pair(master, replica)


def new() -> NewTask:
    return NewTask(new_uuid(), "a", b"{}")


@BOTH
async def test_confirmed_add_survives_the_master(pair: Pair) -> None:
    tasks = [new() for _ in range(200)]
    async with opened(pair.url) as store:
        await asyncio.gather(*(store.add([task]) for task in tasks))
        pair.master.kill()
    assert pair.replica.ask("REPLICAOF", "NO", "ONE") == b"+OK"
    async with opened(pair.replica.url) as after:
        assert None not in await after.get([task.uuid for task in tasks])


@pytest.mark.parametrize("most", [1, 3])
async def test_waiting_adds_respect_max_connections(pair: Pair, most: int) -> None:
    async with opened(f"{pair.url}&max_connections={most}") as store:
        await asyncio.gather(*(store.add([new()]) for _ in range(50)))
        ours = pair.master.text("CLIENT", "LIST").count("name=onthedot")
        assert ours == most


async def test_broken_idle_connections_cost_no_call(pair: Pair) -> None:
    """One attempt for each of them would exceed the deadline."""
    async with opened(pair.url) as store:
        await asyncio.gather(*(store.add([new()]) for _ in range(50)))
        pair.master.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert [added.fresh for added in await store.add([new()])] == [True]


@BOTH
async def test_unconfirmed_add_is_reported_on_every_repeat(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    task = new()
    async with opened(pair.url) as store:
        await store.add([new()])
        monkeypatch.setattr(client, "REPLICA_TIMEOUT", 0.1)
        with pair.replica_stopped():
            with pytest.raises(StoreUnavailable, match="stored, but 0 of 1 replicas had it"):
                await store.add([task])
            async with opened(pair.url) as other:  # on a line that has written nothing
                with pytest.raises(StoreUnavailable, match="stored, but"):
                    await other.add([task])
        monkeypatch.setattr(client, "REPLICA_TIMEOUT", 3.0)
        (added,) = await store.add([task])
        assert not added.fresh


@pytest.mark.timed
async def test_only_adds_wait_for_replicas(pair: Pair) -> None:
    """A worker continues without replicas: lost work is repeated."""
    async with opened(pair.url) as store:
        await store.add([new()])
        with pair.replica_stopped():
            began = time.monotonic()
            await store.heartbeat("w", b"", 60_000)
            turn = await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {"a": 1})]))
            assert turn.claim is not None
            assert len(turn.claim.tasks) == 1
            assert time.monotonic() - began < client.REPLICA_TIMEOUT


async def test_waiting_add_sends_flushed_scripts_again(pair: Pair) -> None:
    async with opened(pair.url) as store:
        for task in (new(), new()):
            pair.master.ask("SCRIPT", "FLUSH")
            assert [added.fresh for added in await store.add([task])] == [True]


async def test_user_with_few_rights_may_wait(pair: Pair) -> None:
    words = rights_text(pair.url, "shop", "onthedot").replace("PASSWORD", "secret").split()
    assert pair.master.ask(*words) == b"+OK"
    async with opened(pair.url.replace("//", "//shop:secret@")) as store:
        assert [added.fresh for added in await store.add([new()])] == [True]


@pytest.mark.parametrize("url", ["redis://a?wait=-1", "redis://a?wait=x", "redis+cluster://a?wait=1"])
def test_invalid_number_of_replicas_is_refused(url: str) -> None:
    with pytest.raises(StoreRefused, match="looks like"):
        parse_url(url)
