"""Parts and results of a batch, as readers get them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from onthedot.codec.task_failure import TaskFailure
from onthedot.model.stored_batches import BatchRequest, StoredFailure, StoredPart, decode_items

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A part of a batch that has ended."""

    number: int
    """In the order in which parts have ended, from 1 without gaps. Continue after it with ``parts(after=number)``."""
    index: int
    """Of the part in the batch, from 0; top-ups come last."""
    items: list[T]
    """The items that are kept."""
    refused: dict[str, int] = field(default_factory=dict[str, int])
    """How many items were refused, by reason: ``duplicate``, ``similar``, ``no name``, ``invalid``, ``surplus``, or the
    text that ``validate`` returned."""
    error: TaskFailure | None = None
    """Set if the part failed, or was cancelled."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the part as plain values, such as for a server-sent event; items are as they are."""
        error = self.error
        return {
            "number": self.number,
            "index": self.index,
            "items": self.items,
            "refused": self.refused,
            "error": None if error is None else {"type": error.type, "message": error.message, "state": error.state},
        }


@dataclass(frozen=True, slots=True)
class BatchResult(Generic[T]):
    """All items of a batch that has ended."""

    items: list[T]
    """In the order in which their parts ended; at most as many as were asked for."""
    short_by: int
    """How many items are missing. Of a list: how many of its elements were in parts that failed."""
    refused: dict[str, int]
    """How many items were refused, by reason."""
    failed_parts: int
    """How many parts failed."""


def public_part(number: int, part: StoredPart, decode: Callable[[bytes], Any]) -> Part[Any]:
    """decode: of results of the task."""
    return Part(number, part.index, decode_items(part, decode), part.refused, _public_failure(part.error))


def batch_result(request: BatchRequest, stored: Iterable[StoredPart], parts: Iterable[Part[T]]) -> BatchResult[T]:
    """A part that was streamed again, after a retry, counts by its last end."""
    last = {part.index: part for part in stored}
    items: list[T] = []
    refused: Counter[str] = Counter()
    for part in parts:
        items += part.items
        refused.update(part.refused)
    failed = [part for part in last.values() if part.error is not None]
    short_by = max(0, request.count - len(items))
    if request.is_list:
        short_by = sum(part.size for part in failed)
    return BatchResult(items, short_by, dict(refused), len(failed))


def stored_failure(failure: TaskFailure) -> StoredFailure:
    return StoredFailure(failure.type, failure.message, failure.uuid, failure.source, failure.state, failure.attempt)


def _public_failure(error: StoredFailure | None) -> TaskFailure | None:
    if error is None:
        return None
    return TaskFailure(error.type, error.message, "", error.attempt, error.uuid, error.source, error.state)
