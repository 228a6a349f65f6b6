"""A store and a dict take the same random steps with series, and must never differ."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import SERIES, SeriesEntry
from tests.model.example_settings import EXAMPLES, FEWER, SETTINGS
from tests.model.stores import OnMemory, OnPostgres, OnRedis, OnSqlite

NAMES = ("minutes", "totals")
MINUTE = 60_000
END = 2**52
Key = tuple[str, int, str]
keys = st.tuples(st.sampled_from(NAMES), st.integers(0, 3), st.sampled_from(["a", "b", "fleet"]))
new = st.lists(st.tuples(keys, st.binary(max_size=3)), max_size=4)
replaced = st.lists(
    st.tuples(keys, st.sampled_from(["now", "now", "now", "before"])), max_size=3, unique_by=lambda x: x[0]
)


class SeriesStores(OnMemory, RuleBasedStateMachine):
    """before: entries that were read earlier; their revisions may be outdated."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = self.made()
        self.start = int(self.clock.now()) // MINUTE * MINUTE
        self.naive: dict[Key, bytes] = {}
        self.writes: dict[Key, int] = {}  # how often each key was written
        self.before: dict[Key, tuple[SeriesEntry, int]] = {}

    def read(self, series: str) -> Sequence[SeriesEntry]:
        return self.wait(self.store.read_series(series, 0, END, 1000))

    def entry(self, key: Key, data: bytes = b"") -> SeriesEntry:
        series, minute, writer = key
        return SeriesEntry(series, self.start + minute * MINUTE, writer, data)

    def key(self, entry: SeriesEntry) -> Key:
        return entry.series, (entry.at - self.start) // MINUTE, entry.writer

    @rule(new=new, replaced=replaced)
    def write(self, new: list[tuple[Key, bytes]], replaced: list[tuple[Key, str]]) -> None:
        current = {self.key(entry): entry for name in NAMES for entry in self.read(name)}
        replaces: list[SeriesEntry] = []
        expected = True
        for key, when in replaced:
            entry = current.get(key, self.entry(key))
            if when == "before" and key in self.before:
                entry, writes = self.before[key]
                expected &= key in self.naive and writes == self.writes[key]
            replaces.append(replace(entry, data=b""))
        written = self.wait(self.store.write_series([self.entry(*each) for each in new], replaces))
        assert written == expected
        if written:
            for key, _ in replaced:
                self.naive.pop(key, None)
            for key, data in new:
                self.naive[key] = data
                self.writes[key] = self.writes.get(key, 0) + 1

    @rule()
    def remember(self) -> None:
        for name in NAMES:
            for entry in self.read(name):
                self.before[self.key(entry)] = (entry, self.writes[self.key(entry)])

    @rule(limit=st.sampled_from([1, 100]), minutes=st.sampled_from([0, 1, 2]))
    def purge(self, limit: int, minutes: int) -> None:
        keep = SERIES["minutes"].keep
        assert keep is not None
        self.clock.advance(self.start + minutes * MINUTE + keep - self.clock.now())
        self.wait(self.store.purge(limit))
        old = sorted(key for key in self.naive if key[0] == "minutes" and key[1] < minutes)
        for key in old[:limit]:
            del self.naive[key]

    @rule(
        name=st.sampled_from(NAMES), since=st.integers(0, 3), until=st.integers(0, 3), limit=st.integers(1, 4),
        newest_first=st.booleans(),
    )  # fmt: skip
    def read_a_range(self, name: str, since: int, until: int, limit: int, newest_first: bool) -> None:
        bounds = (self.start + since * MINUTE, self.start + until * MINUTE)
        found = self.wait(self.store.read_series(name, *bounds, limit, newest_first=newest_first))
        expected = sorted(
            (key for key in self.naive if key[0] == name and since <= key[1] <= until), reverse=newest_first
        )
        assert [self.key(entry) for entry in found] == expected[:limit]

    @invariant()
    def nothing_differs(self) -> None:
        found = {self.key(entry): entry.data for name in NAMES for entry in self.read(name)}
        assert found == self.naive


class SqliteSeriesStores(OnSqlite, SeriesStores):
    pass


class RedisSeriesStores(OnRedis, SeriesStores):
    pass


class PostgresSeriesStores(OnPostgres, SeriesStores):
    pass


SeriesStores.TestCase.settings = settings(SETTINGS, max_examples=max(1, EXAMPLES // 4), stateful_step_count=30)
for machine in (SqliteSeriesStores, RedisSeriesStores, PostgresSeriesStores):
    machine.TestCase.settings = settings(FEWER, max_examples=max(1, EXAMPLES // 20), stateful_step_count=30)
TestSeriesStores = SeriesStores.TestCase
TestSqliteSeriesStores = SqliteSeriesStores.TestCase
TestRedisSeriesStores = pytest.mark.once(RedisSeriesStores.TestCase)
TestPostgresSeriesStores = pytest.mark.once(pytest.mark.usefixtures("postgres")(PostgresSeriesStores.TestCase))
