"""The state of a batch, derived from the parts that its coordinator has streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from onthedot.batches.dedup import Selector
from onthedot.batches.policy import MAX_PARTS, BatchPolicy
from onthedot.model.stored_batches import BatchRequest, StoredPart, decode_items


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A part that shall run. before: as it was streamed before the batch was retried; None: for the first time."""

    index: int
    size: int
    before: StoredPart | None = None


class BatchState:
    """The parts of a batch so far, and those that shall run now. Nothing else is remembered between two runs.

    earlier: attempts of the coordinator before its last retry
    is_retried: nobody waits for the batch any more, so it has no deadline
    decode: of results of the task
    """

    def __init__(
        self,
        request: BatchRequest,
        policy: BatchPolicy,
        parts: Sequence[StoredPart],
        earlier: int,
        decode: Callable[[bytes], object],
        warn: Callable[[str], object],
    ) -> None:
        self._request = request
        self._policy = policy
        self._earlier = earlier
        self._last: dict[int, StoredPart] = {}
        self._is_closed = False
        self._reopened: frozenset[int] = frozenset()
        self.is_retried: bool = False
        self.round: int = 0
        self.selector: Selector = Selector(policy, request.type, None if request.is_list else request.count, warn)
        self.selector.add_existing(request.existing)
        for part in parts:
            self.add(part)
            self.selector.add_accepted(decode_items(part, decode))
        if parts:
            is_over = parts[-1].over is not None
            was_retried = is_over and (parts[-1].over or 0) < earlier
            self.round = parts[-1].round + was_retried
            self.is_retried = self.round > 0
            self._is_closed = is_over and not was_retried

    def add(self, part: StoredPart) -> None:
        """A part that is streamed. Its items are not added to the selector, which has taken them."""
        self._last[part.index] = part
        self._reopened -= {part.index}

    def planned(self) -> list[PlannedPart]:
        """The parts of the request, and the top-ups that are streamed."""
        sizes = self._request.sizes
        planned = [PlannedPart(index, size, self._last.get(index)) for index, size in enumerate(sizes)]
        extra = sorted(index for index in self._last if index >= len(sizes))
        return planned + [PlannedPart(index, self._last[index].size, self._last[index]) for index in extra]

    def reopen(self, indexes: Iterable[int]) -> None:
        """The batch was retried, and these parts, which were streamed as failed, run again."""
        self.is_retried = True
        self._reopened |= frozenset(indexes)

    def wanted(self) -> list[PlannedPart]:
        """The parts that shall run or have ended, and are not streamed in this round; empty: the batch is over."""
        if self._is_closed:
            return []
        open_parts = self.open_parts()
        if open_parts:
            return open_parts[: min(self._policy.at_once or MAX_PARTS, MAX_PARTS)]
        return self._top_up(len(self.planned()))

    def open_parts(self) -> list[PlannedPart]:
        """All parts that are not streamed in this round, however many may live at a time; without a top-up to come."""
        return [part for part in self.planned() if self._is_open(part)]

    def close(self) -> None:
        """No more parts are wanted, whatever is missing."""
        self._is_closed = True

    def _is_open(self, part: PlannedPart) -> bool:
        before = part.before
        if before is None or part.index in self._reopened:
            return True
        return before.error is not None and before.round < self.round

    def _top_up(self, index: int) -> list[PlannedPart]:
        request = self._request
        missing = request.count - self.selector.accepted
        used = index - len(request.sizes)
        allowed = self._policy.top_up * (self.round + 1)
        if missing <= 0 or used >= allowed or request.is_list or request.degraded:
            return []
        return [PlannedPart(index, ceil(missing * self._policy.over))]

    @property
    def has_items(self) -> bool:
        return self.selector.accepted > 0

    @property
    def last_error(self) -> str:
        """Of the part that failed last."""
        for part in sorted(self._last.values(), key=lambda part: part.ended or 0, reverse=True):
            if part.error is not None:
                return f"{part.error.type}: {part.error.message}" if part.error.type else part.error.message
        return ""

    def over(self) -> int | None:
        """Of a part that ends a batch without any item: how its retry is recognised; else None."""
        if self.has_items or self.wanted():
            return None
        return self._earlier
