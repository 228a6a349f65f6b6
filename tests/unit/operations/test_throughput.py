"""Rates out of the change log, by hand: rows and times are the test's."""

from __future__ import annotations

import pytest

from onthedot.operations.throughput import ENDS, Throughput
from onthedot.stores.contract import ChangeEntry, Transition

AT = 1_800_000_000_000  # the store's clock; the other one begins at 0


class Log:
    """What a store would have written, and a pace that is told of it."""

    def __init__(self, ahead: int = AT) -> None:
        self.pace = Throughput(0)
        self.ahead = ahead

    def tell(self, clock: int, *moves: tuple[str, str, str], late: int = 0) -> None:
        """Moves of (uuid, source, state), read at this time by the pace's clock, written so much earlier."""
        at = self.ahead + clock - late
        self.pace.fold([ChangeEntry("1", [Transition(at, *move) for move in moves])], clock)

    def runs(self, clock: int, *uuids: str, end: str = "succeeded", source: str = "a", late: int = 0) -> None:
        for state in ("ready", "running", end):
            self.tell(clock, *((uuid, source, state) for uuid in uuids), late=late)

    def rate(self, *steps: str, source: str | None = None) -> float:
        return sum(rate for (each, step), rate in self.pace.rates().items() if step in steps and source in (None, each))


def test_nothing_yet() -> None:
    pace = Throughput(0)
    assert pace.fold([ChangeEntry("7", []), ChangeEntry("8", [])], 500) == 0
    assert pace.rates() == {}
    assert pace.history(*ENDS) == [0] * 59


def test_rates_are_of_the_last_ten_seconds() -> None:
    log = Log()
    for second in range(20):
        log.runs(second * 1000, *(f"{second}-{number}" for number in range(5)))
    log.tell(19_999)
    assert 4.9 < log.rate("succeeded") < 5.1
    assert 4.9 < log.rate("started") < 5.1
    log.tell(24_999)
    assert 2.4 < log.rate("succeeded") < 2.6  # half of the window has passed without any
    log.tell(60_000)
    assert log.rate(*ENDS) == 0


def test_who_has_just_begun_does_not_divide_by_ten() -> None:
    log = Log()
    log.runs(1900, *map(str, range(20)))
    log.tell(2000)
    assert log.rate("succeeded") == 10


def test_by_source_and_end() -> None:
    log = Log()
    log.runs(500, "1", "2", source="a")
    log.runs(500, "3", source="b", end="failed")
    log.runs(900, "4", source="b", end="cancelled")
    log.tell(1000)
    assert log.pace.rates() == {
        ("a", "started"): 2, ("a", "succeeded"): 2, ("b", "started"): 2, ("b", "failed"): 1, ("b", "cancelled"): 1,
    }  # fmt: skip
    assert list(log.pace.failures) == [(AT + 500, "3")]


def test_back_from_a_run_is_retried_and_new_ones_are_not() -> None:
    log = Log()
    log.tell(100, ("1", "a", "scheduled"))
    log.tell(200, ("1", "a", "ready"))  # due: no retry
    log.tell(300, ("1", "a", "running"))
    log.tell(400, ("1", "a", "scheduled"))
    log.tell(500, ("1", "a", "ready"))
    log.tell(600, ("1", "a", "running"))
    log.tell(700, ("1", "a", "ready"))  # released
    log.tell(800, ("2", "a", "failed"))  # it ran before anybody looked
    log.tell(900, ("2", "a", "ready"))  # revived by somebody
    log.tell(1000)
    assert (log.rate("retried"), log.rate("started"), log.rate("failed")) == (2, 2, 1)


def test_history_has_whole_seconds_the_oldest_first() -> None:
    log = Log()
    log.runs(10_100, "1", "2")
    log.runs(11_900, "3")
    log.runs(12_100, "4")
    assert log.pace.history(*ENDS)[-3:] == [0, 2, 1]  # the second that is not over is not told
    log.tell(13_500)
    assert log.pace.history(*ENDS)[-3:] == [2, 1, 1]
    assert len(log.pace.history(*ENDS)) == 59
    log.tell(75_000)
    assert log.pace.history(*ENDS) == [0] * 59


def test_what_comes_late_counts_where_it_belongs() -> None:
    """The store was away for eight seconds: then everything is read at once."""
    log = Log()
    log.runs(0, "first")
    rows = [
        ChangeEntry("1", [Transition(AT + second * 1000, str(second), "a", "succeeded")]) for second in range(1, 10)
    ]
    log.pace.fold(rows, 9000)
    assert log.pace.history(*ENDS)[-9:] == [1] * 9


def test_a_store_whose_clock_is_an_hour_off_or_steps_back() -> None:
    for ahead in (AT - 3_600_000, AT + 3_600_000, -10_000):
        log = Log(ahead)
        log.runs(1000, "1", "2")
        log.tell(2000)
        assert log.rate("succeeded") == 1
    log.ahead -= 3_600_000
    log.runs(3000, "3", "4", "5")
    log.tell(3500)
    assert log.rate("succeeded") > 0


def test_what_is_never_seen_to_end_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onthedot.operations.throughput.MAX_RUNNING", 1000)
    log = Log()
    for number in range(1200):
        log.tell(1000, (str(number), "a", "running"))
    assert len(log.pace.running) == 1000
    log.tell(1000, ("0", "a", "ready"), ("1199", "a", "ready"))
    assert log.rate("retried") == 1
