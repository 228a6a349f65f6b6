"""The same store on a cluster and behind Sentinel."""

from __future__ import annotations

import asyncio
import time

import pytest

from onthedot import App
from onthedot.errors import StoreUnavailable
from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import ClaimRequest, Completed, Lease, NewTask, SlotPool
from onthedot.stores.redis import RedisStore, client
from onthedot.stores.redis.acl import rights_text
from onthedot.stores.schemes import apps_in, remove_app
from tests.support.services.topologies import cluster, sentinels

pytestmark = [pytest.mark.fault, pytest.mark.once]


async def life(store: RedisStore) -> None:
    """All kinds of calls; none may use a key of another slot."""
    await store.heartbeat("w", b"info", 60_000)
    hints = store.hints("w")
    assert (await anext(hints)).resync
    tasks = [NewTask(new_uuid(), "a", b"{}", lane=lane) for lane in (None, "a/1", "@s", None)]
    await store.add(tasks)
    assert (await asyncio.wait_for(anext(hints), 10)).sources == {"a"}
    turn = await store.turn("w", [], ClaimRequest(1, [SlotPool(10, {"a": 10})]))
    assert turn.claim is not None
    assert [record.uuid for record in turn.claim.tasks] == [task.uuid for task in tasks]
    ends = [Completed(Lease(task.uuid, turn.claim.fence, "w")) for task in tasks]
    assert list((await store.turn("w", ends, None)).verdicts) == ["ok"] * 4
    assert len((await store.find({"state": "succeeded"}, None, 10)).rows) == 4
    assert len((await store.changes("0", 10)).entries) == 3
    assert (await store.sessions()) == {"w": b"info"}
    assert await store.purge(10, 0) == 4
    await hints.aclose()
    await store.close_session("w")


async def test_store_works_on_a_cluster() -> None:
    """As a user with few rights."""
    with cluster() as nodes:
        plain = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        for node in nodes:
            assert node.ask(*rights_text(plain, "shop", "").replace("PASSWORD", "secret").split()) == b"+OK"
        for name in ("one", "two", "three"):  # most likely not all on one node
            store = RedisStore(plain.replace("//", "//shop:secret@"), None, name)
            await store.open()
            try:
                await life(store)
            finally:
                await store.close()


async def test_removed_app_of_a_cluster_leaves_the_others() -> None:
    with cluster() as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        for name in ("one", "two", "three"):
            store = RedisStore(url, None, name)
            await store.open()
            await store.add([NewTask("u1", "a", b"{}")])
            await store.close()
        await asyncio.to_thread(remove_app, url, "two")
        assert await asyncio.to_thread(apps_in, url) == ["one", "three"]


async def test_stopped_cluster_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.3)
    with cluster() as nodes:
        store = RedisStore(f"redis+cluster://127.0.0.1:{nodes[0].port}")
        await store.open()
        for node in nodes:
            node.kill()
        for _ in range(2):  # the driver forgets what it knew of the nodes at the first
            with pytest.raises(StoreUnavailable, match="is it running"):
                await store.tally()
        with pytest.raises(StoreUnavailable, match="is it running"):
            await anext(store.hints("w"))
        await store.close()
        with pytest.raises(StoreUnavailable, match="is it running"):
            await store.open()


async def test_store_follows_a_failover() -> None:
    with sentinels() as ((master, replica), watchers):
        hosts = ",".join(f"127.0.0.1:{watcher.port}" for watcher in watchers)
        app = App("shop", store=f"redis+sentinel://{hosts}/mymaster", stop_timeout=0)

        @app.task
        async def double(number: int) -> int:
            return 2 * number

        async with app.running():
            assert await (await double.enqueue(4)).result(timeout=10) == 8
            assert master.ask("WAIT", 1, 5000) == b":1"
            await asyncio.to_thread(master.kill)
            deadline = time.monotonic() + 30
            while True:
                try:
                    handle = await double.enqueue(21)
                    break
                except StoreUnavailable:  # at once: the sentinels have not agreed yet, and need the processor
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.1)
            assert await handle.result(timeout=20) == 42
        assert replica.text("INFO", "replication").startswith("# Replication\r\nrole:master")
