"""The cursor of the change feed: the transactions whose changes a reader has seen."""

from __future__ import annotations

from typing import NamedTuple


class SeenCalls(NamedTuple):
    """All transactions below `end`, except those in `missing`. As text it has the form of a pg_snapshot.

    Transactions commit in another order than they begin. A cursor that was one number would hide the changes of those
    that commit late, or hold back all others until they have ended. The changes that are new to a reader are those
    that its snapshot of now shows and that of its last read did not; so each is read once, as soon as it is visible.

    >>> seen = SeenCalls.of("10:20:10,15")
    >>> seen.first
    10
    >>> str(seen.after_page(SeenCalls.of("15:30:15,25"), last=10))
    '15:20:15'
    >>> str(seen.after_page(SeenCalls.of("15:30:15,25"), last=27))
    '15:28:15,25'
    """

    end: int
    missing: tuple[int, ...]  # transactions that were open; in order

    @classmethod
    def of(cls, text: str) -> SeenCalls:
        """Parse `<first>:<end>:<open, comma-separated>`."""
        _, end, missing = text.split(":")
        return cls(int(end), tuple(int(call) for call in missing.split(",") if call))

    def __str__(self) -> str:
        return f"{self.first}:{self.end}:{','.join(map(str, self.missing))}"

    @property
    def first(self) -> int:
        """The first transaction that may not have been seen."""
        return min((self.end, *self.missing))

    def after_page(self, now: SeenCalls, last: int) -> SeenCalls:
        """The calls seen after a page that ends with the call `last`, of all that `now` shows."""
        missing = {call for call in now.missing if call <= last} | {call for call in self.missing if call > last}
        return SeenCalls(max(self.end, last + 1), tuple(sorted(missing)))
