"""Records that a subscription has received: bounded, in order per key, and committed up to the first open record."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onthedot.events.bus import BusMessage, BusRecord, TopicPartition
from onthedot.events.records_in_flight import RecordsInFlight
from onthedot.stores.contract import NewTask

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)


def record(offset: int, key: str | None = None, *, partition: int = 0, event: str = "") -> BusRecord:
    message = BusMessage(None if key is None else key.encode(), event.encode() or f"{partition}:{offset}".encode())
    return BusRecord("orders", partition, offset, message)


def task_of(received: BusRecord) -> NewTask | None:
    event = received.message.value.decode()
    return None if event == "skip" else NewTask(event, "agent.mailer", b"")


class Flight:
    def __init__(self, most: int = 100, *, ordered: bool = True) -> None:
        self.records = RecordsInFlight(most, ordered=ordered)
        self.skipped = 0

    def receive(self, *records: BusRecord) -> list[str]:
        """The tasks that are added now."""
        self.records.receive(records)
        return self.add()

    def add(self) -> list[str]:
        self.skipped += self.records.accept(task_of)
        return [task.uuid for task in self.records.take_ready(100)]

    def end(self, *events: str) -> list[str]:
        for event in events:
            self.records.end(event)
        return self.add()

    def offsets(self) -> dict[TopicPartition, int | None]:
        return {partition: window.offset() for partition, window in self.records.windows.items()}


def test_records_of_a_key_start_one_after_another_and_others_at_once() -> None:
    flight = Flight()
    added = flight.receive(record(0, "a"), record(1, "a"), record(2, "b"), record(3, "a"), record(4))
    assert added == ["0:0", "0:2", "0:4"]
    assert flight.end("0:2", "0:4") == []
    assert flight.end("0:0") == ["0:1"]
    assert flight.end("0:1") == ["0:3"]
    assert flight.records.count == 1


def test_without_order_all_records_start_at_once() -> None:
    flight = Flight(ordered=False)
    assert flight.receive(record(0, "a"), record(1, "a"), record(2, "a")) == ["0:0", "0:1", "0:2"]


def test_same_key_in_two_partitions_has_two_orders() -> None:
    flight = Flight()
    assert sorted(flight.receive(record(0, "a"), record(0, "a", partition=1))) == ["0:0", "1:0"]


def test_offset_does_not_pass_an_open_record() -> None:
    flight = Flight(ordered=False)
    flight.receive(*(record(number, str(number)) for number in range(10, 15)))
    assert flight.offsets() == {P0: None}
    flight.end("0:11", "0:12", "0:14")
    assert flight.offsets() == {P0: None}
    flight.end("0:10")
    assert flight.offsets() == {P0: 13}
    flight.records.windows[P0].mark_committed(13)
    assert flight.offsets() == {P0: None}
    flight.end("0:13")
    assert flight.offsets() == {P0: 15}


def test_skipped_records_move_the_offset() -> None:
    flight = Flight()
    assert flight.receive(record(0, event="skip"), record(1), record(2, event="skip")) == ["0:1"]
    assert (flight.skipped, flight.records.count) == (2, 1)
    assert flight.offsets() == {P0: 1}
    flight.end("0:1")
    assert flight.offsets() == {P0: 3}


def test_offset_is_returned_again_until_it_is_committed() -> None:
    flight = Flight()
    flight.receive(record(0))
    flight.end("0:0")
    assert flight.offsets() == flight.offsets() == {P0: 1}


def test_no_more_than_the_limit_are_in_flight() -> None:
    flight = Flight(most=4)
    assert len(flight.receive(*(record(number) for number in range(10)))) == 4
    assert flight.records.blocked() == {P0}
    assert flight.end("0:0") == ["0:4"]
    assert flight.end("0:1", "0:2", "0:3", "0:4") == ["0:5", "0:6", "0:7", "0:8"]
    assert flight.end("0:5") == ["0:9"]
    assert flight.records.blocked() == {P0}, "it was full, and there is hardly any room"
    flight.end("0:6")
    assert flight.records.blocked() == set()


@pytest.mark.parametrize("most", [1, 2, 3, 4, 100])
def test_partition_that_was_full_is_resumed(most: int) -> None:
    flight = Flight(most=most)
    flight.receive(*(record(number) for number in range(most)))
    assert flight.records.blocked() == {P0}
    flight.end(*(f"0:{number}" for number in range(most)))
    assert flight.records.blocked() == set()


def test_one_key_takes_half_of_the_room_and_blocks_its_partition_only() -> None:
    flight = Flight(most=6)
    flight.receive(*(record(number, "a") for number in range(5)), record(5, "b"), record(0, "c", partition=1))
    assert flight.records.count == 4
    assert flight.records.blocked() == {P0}
    assert flight.end("0:0") == ["0:1"], "and the fourth one is accepted"
    assert flight.records.count == 4
    assert flight.end("0:1") == ["0:2", "0:5"]
    assert flight.records.blocked() == set()


def test_partitions_take_turns_when_there_is_little_room() -> None:
    flight = Flight(most=1)
    flight.receive(*(record(number, partition=part) for part in (0, 1) for number in range(20)))
    seen: list[str] = []
    running = flight.records.oldest_open(1)
    for _ in range(20):
        seen += [uuid[0] for uuid in running]
        running = flight.end(*running)
    assert 5 <= seen.count("0") <= 15


def test_copy_of_an_open_event_ends_with_it() -> None:
    flight = Flight(ordered=False)
    assert flight.receive(record(0, event="e"), record(1, event="e"), record(2, event="f")) == ["e", "f"]
    assert flight.receive(record(3, event="e")) == []
    assert flight.records.end("e") == 3
    assert flight.offsets() == {P0: 2}
    assert flight.records.count == 1


def test_tasks_that_were_not_added_are_ready_again_in_the_same_order() -> None:
    flight = Flight(ordered=False)
    flight.records.receive([record(0), record(1, event="e"), record(2, event="e"), record(3)])
    flight.records.accept(task_of)
    tasks = flight.records.take_ready(2)
    assert [task.uuid for task in tasks] == ["0:0", "e"]
    flight.records.put_back(tasks)
    assert not flight.records.has_open
    assert flight.add() == ["0:0", "e", "0:3"]
    assert flight.records.end("e") == 2


def test_partition_of_another_member_is_forgotten() -> None:
    flight = Flight(most=4)
    flight.receive(record(0, "a"), record(1, "a"), record(0, "a", partition=1))
    flight.receive(record(2, event="late"), record(3, event="later"))
    assert flight.records.count == 4
    flight.end("0:0")
    flight.records.take_ready(100)
    (window,) = flight.records.forget([P0, TopicPartition("other", 7)])
    assert window.offset() == 1
    assert flight.records.count == 1
    assert flight.records.blocked() == set()
    assert flight.records.end("0:1") == 0
    assert flight.end("late") == []
    assert flight.records.count == 1
    flight.end("1:0")
    assert flight.records.count == 0
    assert flight.receive(record(1, "a")) == ["0:1"], "it came back, and is read again"


def test_record_that_was_ready_is_not_added_after_its_partition_is_gone() -> None:
    flight = Flight()
    flight.records.receive([record(0), record(0, partition=1)])
    flight.records.accept(task_of)
    flight.records.forget([P0])
    assert flight.add() == ["1:0"]


def test_copy_in_another_partition_stays_open_when_the_first_is_forgotten() -> None:
    flight = Flight()
    flight.receive(record(0, event="e"), record(0, partition=1, event="e"))
    flight.records.forget([P0])
    assert flight.records.count == 1
    assert flight.records.end("e") == 1
    assert flight.offsets() == {P1: 1}


def read(flight: Flight, limit: int) -> Sequence[str]:
    return flight.records.oldest_open(limit)


def test_open_tasks_are_read_in_rounds_from_the_oldest_on() -> None:
    flight = Flight()
    flight.receive(*(record(number) for number in range(5)))
    assert read(flight, 2) == ["0:0", "0:1"]
    flight.end("0:2")
    assert read(flight, 2) == ["0:3", "0:4"]
    assert read(flight, 10) == ["0:0", "0:1", "0:3", "0:4"]
    assert flight.records.open_among(["0:0", "0:2", "x"]) == ["0:0"]
    assert flight.records.open_among({"0:0", "0:2", "x", "y", "z"}) == ["0:0"]
