"""The figures of a fault run on a bus that carries numbered messages, in one line that is the same for all runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BusReport:
    """recovery: seconds from the end of each fault to the next message."""

    run: str
    acknowledged: int
    lost: int
    copies: int
    out_of_order: int
    recovery: Sequence[float]

    def __str__(self) -> str:
        times = ", ".join(f"{seconds:.1f}" for seconds in self.recovery)
        return (
            f"{self.run}: {self.acknowledged} messages acknowledged, {self.lost} lost, {self.copies} copies, "
            f"{self.out_of_order} out of order, recovery {times or '–'} s"
        )

    def check(self, most_copies: int) -> None:
        print(f"\n{self}")
        assert self.lost == 0, self
        assert self.out_of_order == 0, self
        assert self.copies <= most_copies, self


def report_messages(
    run: str, acknowledged: Mapping[int, int], found: Iterable[tuple[int, int]], recovery: Sequence[float] = ()
) -> BusReport:
    """Of each partition the numbers from 0 on were sent. acknowledged: how many; found: partition and number."""
    by_partition: dict[int, list[int]] = {partition: [] for partition in acknowledged}
    for partition, number in found:
        by_partition[partition].append(number)
    first_copies = {partition: list(dict.fromkeys(numbers)) for partition, numbers in by_partition.items()}
    return BusReport(
        run,
        acknowledged=sum(acknowledged.values()),
        lost=sum(len(set(range(count)) - set(first_copies[partition])) for partition, count in acknowledged.items()),
        copies=sum(len(numbers) - len(first_copies[partition]) for partition, numbers in by_partition.items()),
        out_of_order=sum(numbers != sorted(numbers) for numbers in first_copies.values()),
        recovery=recovery,
    )
