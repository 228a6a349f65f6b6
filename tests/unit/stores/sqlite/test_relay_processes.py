"""Relays in several processes: they wake each other, and the buckets of one that was killed are free at once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from onthedot.stores.contract import BUCKETS, RelayRequest
from onthedot.stores.sqlite import SqliteStore
from tests.contract.event_steps import event
from tests.support.waits import SOON
from tests.unit.stores.sqlite.peer import FOREVER, peers

AT_ONCE = 1.0  # seconds; the lease of these sessions never ends


async def open_relay(path: Path, session: str = "me") -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    await store.heartbeat(session, b"", FOREVER)
    return store


async def turn(store: SqliteStore, session: str = "me") -> tuple[list[int], list[str]]:
    result = await store.relay(session, [], {}, RelayRequest())
    assert result.alive
    return list(result.buckets), [stored.event.id for stored in result.events]


async def test_publish_wakes_the_relays_of_other_processes(tmp_path: Path) -> None:
    store = await open_relay(tmp_path / "t.db")
    with peers(tmp_path / "t.db", "p1") as (relay,):
        assert relay.ask("relay") == [list(range(BUCKETS)), []]
        relay.say("event hint")
        await store.publish([event(event_id="1")])
        assert relay.hear() is None
        assert relay.ask("relay")[1] == ["1"]
    await store.close()


async def test_publish_wakes_no_session_that_relays_nothing(tmp_path: Path) -> None:
    store = await open_relay(tmp_path / "t.db")
    hints = store.hints("me")
    await anext(hints)
    with peers(tmp_path / "t.db", "p1") as (peer,):
        assert peer.ask("publish", "1") == [True]
        assert peer.ask("add", "u1") == [True]
        hint = await asyncio.wait_for(anext(hints), SOON)
        assert (hint.sources, hint.events) == ({"a"}, False)
    await hints.aclose()
    await store.close()


async def test_buckets_of_a_killed_process_are_free_at_once(tmp_path: Path) -> None:
    store = await open_relay(tmp_path / "t.db")
    hints = store.hints("me")
    await anext(hints)
    with peers(tmp_path / "t.db", "p1") as (relay,):
        assert relay.ask("publish", "1", "2") == [True, True]
        assert relay.ask("relay") == [list(range(BUCKETS)), ["1", "2"]]
        assert await turn(store) == ([], []), "the other owns them all"
        before = time.monotonic()
        relay.kill()
        while not (await asyncio.wait_for(anext(hints), SOON)).events:
            pass
        assert await turn(store) == (list(range(BUCKETS)), ["1", "2"])
        assert time.monotonic() - before < AT_ONCE
        state = await store.outbox_state()
        assert set(state.owners[""].values()) == {"me"}
    await hints.aclose()
    await store.close()


async def test_relay_without_hints_takes_the_buckets_of_a_killed_process(tmp_path: Path) -> None:
    store = await open_relay(tmp_path / "t.db")
    with peers(tmp_path / "t.db", "p1") as (relay,):
        assert relay.ask("relay")[0] == list(range(BUCKETS))
        assert await turn(store) == ([], [])
        before = time.monotonic()
        relay.kill()
        relay.process.wait()
        while (await turn(store))[0] != list(range(BUCKETS)):
            assert time.monotonic() - before < AT_ONCE
    await store.close()


async def test_relay_that_leaves_wakes_the_others(tmp_path: Path) -> None:
    store = await open_relay(tmp_path / "t.db")
    with peers(tmp_path / "t.db", "p1") as (relay,):
        assert (await turn(store))[0] == list(range(BUCKETS))
        assert relay.ask("relay")[0] == []
        relay.say("event hint")
        assert len((await turn(store))[0]) == BUCKETS // 2, "it gives back the rest"
        assert relay.hear() is None
        assert len(relay.ask("relay")[0]) == BUCKETS // 2
        relay.say("event hint")
        await store.close_session("me")
        assert relay.hear() is None
        assert relay.ask("relay")[0] == list(range(BUCKETS))
    await store.close()
