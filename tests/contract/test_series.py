"""Series: entries by key, in order; compare and set; retention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import MAX_SERIES_DATA, SERIES, SeriesEntry, SeriesRetention, Store

END = 2**52


def entry(at: int, writer: str = "w1", data: bytes = b"", series: str = "minutes", revision: int = 0) -> SeriesEntry:
    return SeriesEntry(series, at, writer, data, revision)


async def read(store: Store, series: str = "minutes") -> Sequence[SeriesEntry]:
    return await store.read_series(series, 0, END, 1000)


async def keys(store: Store, series: str = "minutes") -> list[tuple[int, str]]:
    return [(each.at, each.writer) for each in await read(store, series)]


async def test_entries_come_in_order_of_time_and_writer(store: Store) -> None:
    assert await store.write_series([entry(20, "b"), entry(20, "a"), entry(100, "a"), entry(3, "é:ü")])
    assert await keys(store) == [(3, "é:ü"), (20, "a"), (20, "b"), (100, "a")]
    newest = await store.read_series("minutes", 0, END, 3, newest_first=True)
    assert [(each.at, each.writer) for each in newest] == [(100, "a"), (20, "b"), (20, "a")]


async def test_both_ends_of_a_range_are_read_and_a_page_continues(store: Store) -> None:
    await store.write_series([entry(at, "a") for at in (10, 20, 30, 40)])
    page = await store.read_series("minutes", 20, 40, 2)
    assert [each.at for each in page] == [20, 30]
    rest = await store.read_series("minutes", page[-1].at, 40, 3)
    assert [each.at for each in rest] == [30, 40]
    assert list(await store.read_series("minutes", 41, END, 9)) == []


async def test_series_are_apart_and_data_is_kept_as_it_is(store: Store) -> None:
    data = bytes(range(256))
    await store.write_series([entry(1, "a", data), entry(1, "a", b"", "audit")])
    assert [each.data for each in await read(store)] == [data]
    assert [each.data for each in await read(store, "audit")] == [b""]
    assert list(await read(store, "hours")) == []


async def test_later_write_of_a_key_takes_its_place(store: Store) -> None:
    await store.write_series([entry(1, "a", b"first")])
    (first,) = await read(store)
    await store.write_series([entry(1, "a", b"second"), entry(1, "a", b"third")])
    (third,) = await read(store)
    assert third.data == b"third"
    assert third.revision > first.revision > 0


async def test_replaced_entries_go_in_the_step_that_writes_others(store: Store) -> None:
    await store.write_series([entry(1, "a", b"1"), entry(1, "b", b"2"), entry(2, "a", b"3")])
    one, two, _ = await read(store)
    assert await store.write_series([entry(1, "fleet", b"12")], replaces=[one, two])
    assert [(each.at, each.writer, each.data) for each in await read(store)] == [(1, "fleet", b"12"), (2, "a", b"3")]


async def test_key_that_is_replaced_can_be_written_again_in_the_same_call(store: Store) -> None:
    await store.write_series([entry(0, "fleet", b"1", "totals")])
    (old,) = await read(store, "totals")
    assert await store.write_series([entry(0, "fleet", b"2", "totals")], replaces=[old])
    assert [each.data for each in await read(store, "totals")] == [b"2"]
    assert not await store.write_series([entry(0, "fleet", b"3", "totals")], replaces=[old])
    assert [each.data for each in await read(store, "totals")] == [b"2"]


async def test_nothing_changes_if_one_of_the_replaced_entries_was_written_since(store: Store) -> None:
    await store.write_series([entry(1, "a", b"1"), entry(1, "b", b"2")])
    one, two = await read(store)
    await store.write_series([entry(1, "b", b"later")])
    assert not await store.write_series([entry(1, "fleet")], replaces=[one, two])
    assert [(each.writer, each.data) for each in await read(store)] == [("a", b"1"), ("b", b"later")]


async def test_revision_of_a_removed_entry_is_not_given_again(store: Store) -> None:
    await store.write_series([entry(1, "a", b"1")])
    (old,) = await read(store)
    assert await store.write_series([], replaces=[old])
    assert not await store.write_series([entry(2, "a")], replaces=[old])
    await store.write_series([entry(1, "a", b"again")])
    assert not await store.write_series([entry(2, "a")], replaces=[old])
    assert [each.data for each in await read(store)] == [b"again"]


async def test_revision_0_stands_for_no_entry(store: Store) -> None:
    assert await store.write_series([entry(1, "fleet", b"first")], replaces=[entry(1, "fleet")])
    assert not await store.write_series([entry(1, "fleet", b"second")], replaces=[entry(1, "fleet")])
    assert [each.data for each in await read(store)] == [b"first"]


async def test_data_above_the_limit_is_refused_by_name(store: Store) -> None:
    await store.write_series([entry(1, "a", b"x" * MAX_SERIES_DATA)])
    with pytest.raises(ValueError, match="'audit': the entry of 'ann' has 65,537 bytes, the limit is 65,536"):
        await store.write_series([entry(2), entry(1, "ann", b"x" * (MAX_SERIES_DATA + 1), "audit")])
    assert await keys(store) == [(1, "a")]


async def test_unknown_series_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="there is no series 'seconds'"):
        await store.write_series([entry(1, series="seconds")])


async def test_purge_drops_what_is_older_than_its_series_keeps(store: Store, clock: ManualClock) -> None:
    now = int(clock.now())
    keep = SERIES["minutes"].keep
    assert keep is not None
    await store.write_series([entry(now - keep - 1), entry(now - keep), entry(0, series="totals")])
    await store.write_series([entry(now - keep - 1, series="hours")])
    await store.purge(100)
    assert await keys(store) == [(now - keep, "w1")]
    assert await keys(store, "totals") == [(0, "w1")]
    assert len(await keys(store, "hours")) == 1


async def test_purge_drops_at_most_the_limit_of_a_series(store: Store) -> None:
    await store.write_series([entry(at) for at in range(5)])
    await store.purge(3)
    assert await keys(store) == [(3, "w1"), (4, "w1")]


async def test_purge_drops_the_oldest_beyond_the_number_of_a_series(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cast("dict[str, SeriesRetention]", SERIES), "audit", SeriesRetention(None, 2))
    now = int(clock.now())
    await store.write_series([entry(now + number, "ann", series="audit") for number in range(5)])
    await store.purge(1)
    assert await keys(store, "audit") == [(now + number, "ann") for number in range(1, 5)]
    await store.purge(100)
    assert await keys(store, "audit") == [(now + 3, "ann"), (now + 4, "ann")]
