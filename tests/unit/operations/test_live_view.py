"""Snapshots of a real store, also of one that goes away and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from onthedot.codec.untyped import encode_untyped
from onthedot.model.failures import encode_failure
from onthedot.operations import Operations, live_view
from onthedot.operations.live_view import LiveView
from onthedot.stores.contract import ClaimRequest, Completed, Ended, Lease, Limit, NewTask, Outcome, SlotPool
from onthedot.stores.sqlite import SqliteStore


class Shop:
    """A store in which tasks run, and another connection to it for the view."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(path)
        self.other = SqliteStore(path)
        self.numbers = 0

    async def open(self) -> LiveView:
        await self.store.open()
        await self.other.open()
        await self.store.heartbeat("me", b'{"host":"h","pid":1,"sources":["a"]}', 10**9)
        return Operations(self.other, "you").watch()

    async def run(self, *uuids: str, error: str = "") -> None:
        await self.store.add([NewTask(uuid, "a", encode_untyped({})) for uuid in uuids])
        self.numbers += 1
        turn = await self.store.turn("me", [], ClaimRequest(self.numbers, [SlotPool(100, {"a": 100})]))
        assert turn.claim is not None
        leases = [Lease(record.uuid, turn.claim.fence, "me") for record in turn.claim.tasks]
        failure = encode_failure(ValueError(error), 1)
        outcomes: list[Outcome] = [Ended(lease, "failed", failure) if error else Completed(lease) for lease in leases]
        await self.store.turn("me", outcomes, None)

    async def close(self) -> None:
        await self.store.close_session("me")
        await self.store.close()
        await self.other.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read tallies for every snapshot, so that a test need not wait for a second."""
    monkeypatch.setattr(live_view, "COUNT_INTERVAL", 0)


@pytest.mark.usefixtures("at_once")
async def test_snapshot_has_rates_sources_workers_and_failures(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "t.db")
    watch = await shop.open()
    await shop.run("before", error="an old one")
    first = await watch.look()
    assert (first.rates.done, first.trouble) == (0, "")  # counted from now on
    assert [(each.uuid, each.message) for each in first.failures] == [("before", "an old one")]
    await shop.run("1", "2", "3")
    await shop.run("4", error="no card")
    await shop.store.put_limits([Limit("a", paused=True, reason="deploy", owner="operator")])
    frame = await watch.look()
    assert frame.rates.done == 4 * frame.rates.failed > 0
    assert frame.by_source["a"] == frame.rates
    (source,) = frame.sources
    assert (source.succeeded, source.failed, source.workers) == (3, 2, 1)
    assert source.paused is not None
    assert [worker.id for worker in frame.workers] == ["me"]
    assert [each.uuid for each in frame.failures] == ["4", "before"]
    assert (frame.failures[0].type, frame.failures[0].message) == ("ValueError", "no card")
    await shop.close()


async def test_tallies_are_not_read_for_every_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path / "t.db")
    watch = await shop.open()
    requests = 0
    tally = shop.other.tally

    async def counting() -> object:
        nonlocal requests
        requests += 1
        return await tally()

    monkeypatch.setattr(shop.other, "tally", counting)
    monkeypatch.setattr(live_view, "COUNT_INTERVAL", 3_600_000)
    for number in range(20):
        await shop.run(str(number))
        frame = await watch.look()
    assert requests == 1
    assert frame.rates.done > 0  # from the change feed alone
    await shop.close()


@pytest.mark.usefixtures("at_once")
async def test_snapshots_continue_while_the_store_is_away(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "t.db")
    watch = await shop.open()
    await shop.run("1")
    before = await watch.look()
    (tmp_path / "t.db").rename(tmp_path / "elsewhere")
    frame = await watch.look()
    assert "does not exist any more" in frame.trouble
    assert frame.since is not None
    assert frame.sources == before.sources
    assert (await watch.look()).since == frame.since
    assert not (tmp_path / "t.db").exists()  # reading creates nothing
    (tmp_path / "elsewhere").rename(tmp_path / "t.db")
    frame = await watch.look()
    assert (frame.trouble, frame.since) == ("", None)
    await shop.run("2", "3")
    assert (await watch.look()).rates.done > 0
    await shop.close()


@pytest.mark.usefixtures("at_once")
async def test_replaced_data_set_is_followed_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursors of the new data set begin far below those of the old one."""
    monkeypatch.setattr(live_view, "IDLE_INTERVAL", 0)
    shop = Shop(tmp_path / "t.db")
    watch = await shop.open()
    await watch.look()
    for number in range(50):
        await shop.run(str(number))
    await watch.look()
    await shop.store.close()
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"t.db{end}").unlink(missing_ok=True)
    new = Shop(tmp_path / "t.db")
    await new.open()
    await new.run("1")
    await watch.look()  # nothing after the old cursor, so the view starts at the end of the feed
    await new.run("2", error="oh")
    frame = await watch.look()
    assert "2" in [each.uuid for each in frame.failures]
    await new.close()
    await shop.other.close()
