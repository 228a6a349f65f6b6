"""Rates from entries of the change feed, with entries and times made by the test."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from onthedot.operations.throughput import ENDS, Throughput
from onthedot.stores.contract import ChangeEntry, State, Transition

Move: TypeAlias = tuple[str, str, State]
AT = 1_800_000_000_000  # the store's clock; that of the reader begins at 0


def entry(at: int, *moves: Move) -> ChangeEntry:
    counts: dict[str, dict[State, int]] = {}
    transitions = [Transition(at, *move) for move in moves]
    for each in transitions:
        by_state = counts.setdefault(each.source, {})
        by_state[each.state] = by_state.get(each.state, 0) + 1
    return ChangeEntry(at, counts, transitions)


class Log:
    """Entries as a store would write them, folded into a Throughput."""

    def __init__(self, ahead: int = AT) -> None:
        self.throughput = Throughput(0)
        self.ahead = ahead

    def fold(self, clock: int, *moves: Move, late: int = 0) -> None:
        """Fold transitions (uuid, source, state): read at `clock` by the reader, written `late` ms earlier."""
        self.throughput.fold([entry(self.ahead + clock - late, *moves)], clock)

    def runs(self, clock: int, *uuids: str, end: State = "succeeded", source: str = "a", late: int = 0) -> None:
        states: tuple[State, ...] = ("ready", "running", end)
        for state in states:
            self.fold(clock, *((uuid, source, state) for uuid in uuids), late=late)

    def rate(self, *steps: str, source: str | None = None) -> float:
        return sum(
            rate for (each, step), rate in self.throughput.rates().items() if step in steps and source in (None, each)
        )


def test_throughput_without_entries_is_zero() -> None:
    throughput = Throughput(0)
    assert throughput.fold([ChangeEntry(AT, {}), ChangeEntry(AT, {})], 500) == 0
    assert throughput.rates() == {}
    assert throughput.history(*ENDS) == [0] * 59


def test_rates_cover_the_last_ten_seconds() -> None:
    log = Log()
    for second in range(20):
        log.runs(second * 1000, *(f"{second}-{number}" for number in range(5)))
    log.fold(19_999)
    assert 4.9 < log.rate("succeeded") < 5.1
    assert 4.9 < log.rate("started") < 5.1
    log.fold(24_999)
    assert 2.4 < log.rate("succeeded") < 2.6  # none in half of the ten seconds
    log.fold(60_000)
    assert log.rate(*ENDS) == 0


def test_rates_of_the_first_seconds_use_the_elapsed_time() -> None:
    log = Log()
    log.runs(1900, *map(str, range(20)))
    log.fold(2000)
    assert log.rate("succeeded") == 10


def test_rates_are_kept_by_source_and_end() -> None:
    log = Log()
    log.runs(500, "1", "2", source="a")
    log.runs(500, "3", source="b", end="failed")
    log.runs(900, "4", source="b", end="cancelled")
    log.fold(1000)
    assert log.throughput.rates() == {
        ("a", "started"): 2, ("a", "succeeded"): 2, ("b", "started"): 2, ("b", "failed"): 1, ("b", "cancelled"): 1,
    }  # fmt: skip
    assert list(log.throughput.failures) == [(AT + 500, "3")]


def test_requeued_tasks_count_as_retried_and_new_ones_do_not() -> None:
    log = Log()
    log.fold(100, ("1", "a", "scheduled"))
    log.fold(200, ("1", "a", "ready"))  # due: no retry
    log.fold(300, ("1", "a", "running"))
    log.fold(400, ("1", "a", "scheduled"))
    log.fold(500, ("1", "a", "ready"))
    log.fold(600, ("1", "a", "running"))
    log.fold(700, ("1", "a", "ready"))  # released
    log.fold(800, ("2", "a", "failed"))  # it ran before the first read
    log.fold(900, ("2", "a", "ready"))  # revived
    log.fold(1000)
    assert (log.rate("retried"), log.rate("started"), log.rate("failed")) == (2, 2, 1)


def test_history_has_full_seconds_the_oldest_first() -> None:
    log = Log()
    log.runs(10_100, "1", "2")
    log.runs(11_900, "3")
    log.runs(12_100, "4")
    assert log.throughput.history(*ENDS)[-3:] == [0, 2, 1]  # without the current second
    log.fold(13_500)
    assert log.throughput.history(*ENDS)[-3:] == [2, 1, 1]
    assert len(log.throughput.history(*ENDS)) == 59
    assert log.throughput.history(*ENDS, source="a") == log.throughput.history(*ENDS)
    assert set(log.throughput.history(*ENDS, source="b")) == {0}
    log.fold(75_000)
    assert log.throughput.history(*ENDS) == [0] * 59


def test_late_entries_count_in_their_second() -> None:
    """The store was away for eight seconds; then all entries are read at once."""
    log = Log()
    log.runs(0, "first")
    rows = [entry(AT + second * 1000, (str(second), "a", "succeeded")) for second in range(1, 10)]
    log.throughput.fold(rows, 9000)
    assert log.throughput.history(*ENDS)[-9:] == [1] * 9


def test_clock_of_the_store_may_be_an_hour_off_or_step_back() -> None:
    for ahead in (AT - 3_600_000, AT + 3_600_000, -10_000):
        log = Log(ahead)
        log.runs(1000, "1", "2")
        log.fold(2000)
        assert log.rate("succeeded") == 1
    log.ahead -= 3_600_000
    log.runs(3000, "3", "4", "5")
    log.fold(3500)
    assert log.rate("succeeded") > 0


def test_running_tasks_without_an_end_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onthedot.operations.throughput.MAX_RUNNING", 1000)
    log = Log()
    for number in range(1200):
        log.fold(1000, (str(number), "a", "running"))
    assert len(log.throughput.running) == 1000
    log.fold(1000, ("0", "a", "ready"), ("1199", "a", "ready"))
    assert log.rate("retried") == 1


def test_durations_are_those_from_start_to_end() -> None:
    log = Log()
    log.fold(100, ("1", "a", "running"), ("2", "a", "running"), ("3", "b", "running"))
    log.fold(350, ("1", "a", "succeeded"), ("3", "b", "ready"))
    log.fold(600, ("2", "a", "failed"), ("4", "a", "succeeded"))
    assert {source: list(each) for source, each in log.throughput.durations.items()} == {"a": [250, 500]}
