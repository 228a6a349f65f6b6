"""The task that coordinates a batch: it adds parts, waits for their ends, and streams them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, cast

from msgspec import Raw
from msgspec.structs import replace

from onthedot.batches.new_parts import PartMaker
from onthedot.batches.parts import stored_failure
from onthedot.batches.policy import MAX_PARTS
from onthedot.batches.progress import BatchState, PlannedPart
from onthedot.client.lane_router import route_by
from onthedot.clock.durations import MINUTE
from onthedot.codec.body import ResultNotEncodable, Undecodable
from onthedot.codec.task_failure import TaskFailure
from onthedot.codec.untyped import decode_untyped_result
from onthedot.engine.repeated_calls import RepeatedCalls
from onthedot.engine.suspension import Suspension
from onthedot.errors import Reject, TaskError
from onthedot.flows.results import failure_of
from onthedot.model.context import RunState
from onthedot.model.failures import read_result
from onthedot.model.flow_names import MemberUuids
from onthedot.model.stored_batches import BatchRequest, StoredPart, read_part, write_part
from onthedot.model.streams import MAX_ITEM, StreamRunProtocol
from onthedot.observability.events import Observer
from onthedot.stores.contract import ENDED, Effects, Record, Store, Suspended, Wait

if TYPE_CHECKING:
    from onthedot.batches.coordinator_source import CoordinatorSource

_RECHECK = MINUTE  # ms after which a coordinator looks again, whatever its counter says
_MANY_COMPARISONS = 20_000  # pairs of names: more are compared in a thread, beside the event loop
_MAX_PART = MAX_ITEM - 100  # bytes; the rest is for fields that are set last
_DEADLINE = "the deadline of its batch is over"


@dataclass(frozen=True)
class BatchWorker:
    """Access to the store, for the coordinators that a worker runs. cancel: tasks by uuid, with a reason."""

    store: Store
    calls: RepeatedCalls
    cancel: Callable[[Sequence[str], str], Awaitable[object]]
    observer: Observer


class Coordinator:
    """One run. It derives all that it knows from the parts that earlier runs have streamed."""

    def __init__(
        self,
        source: CoordinatorSource,
        worker: BatchWorker,
        run: RunState,
        stream: StreamRunProtocol,
        request: BatchRequest,
    ) -> None:
        self._source = source
        self._stream = stream
        self._definition = source.definition
        self._worker = worker
        self._run = run
        self._request = request
        self._batch = run.record.uuid
        self._uuids = MemberUuids(self._batch)
        self._not_revived: set[int] = set()

    async def parts(self) -> AsyncGenerator[StoredPart, None]:
        """Yields the parts that have ended since the last run. Suspends the task until the next one has."""
        state = self._state([read_part(item) for item in await self._stream.items()])
        if self._run.record.history.earlier:  # only then it can have been retried
            await self._reopen(state)
        while planned := state.wanted():
            seen = await self._ends()  # before the parts: an end after this raises it, and with it the wait is over
            records = await self._records(planned)
            if await self._revive(planned, records):
                continue
            found = [pair for pair in zip(planned, records, strict=True) if self._has_ended(*pair)]
            for part, record in sorted(found, key=_by_end):
                assert record is not None
                had_items = state.has_items
                ended = self._streamed(state, await self._ended(state, part, record))
                yield ended
                self._report(ended, record, is_first=state.has_items and not had_items)
            if found:
                continue
            left = self._time_left(state)
            if left is not None and left <= 0:
                late_parts = state.open_parts() or planned  # also those that `at_once` has held back
                records = await self._records(late_parts)
                state.close()
                for late in await self._give_up(late_parts, records, state.round):
                    yield self._streamed(state, late)
                    self._report(late, None, is_first=False)
                break
            await self._wait(planned, records, seen, left)
        if not state.has_items:
            problem = f"; the last error is {state.last_error}" if state.last_error else ""
            raise Reject(f"no part of the batch gave an item{problem}")

    def _state(self, parts: Sequence[StoredPart]) -> BatchState:
        decode = self._definition.decode_result
        warn = self._run.context.logger.warning
        return BatchState(self._request, self._source.policy, parts, self._run.record.history.earlier, decode, warn)

    # -- reading

    async def _ends(self) -> int:
        (counter,) = await self._worker.calls.run(lambda: self._worker.store.counters([self._batch]))
        return counter.value

    async def _records(self, planned: Sequence[PlannedPart]) -> Sequence[Record | None]:
        uuids = [self._uuids.of(part.index) for part in planned]
        return await self._worker.calls.run(lambda: self._worker.store.get(uuids))

    def _has_ended(self, part: PlannedPart, record: Record | None) -> bool:
        if record is None or record.state not in ENDED:
            return False
        return part.index in self._not_revived or not _is_old_end(part, record)

    async def _revive(self, planned: Sequence[PlannedPart], records: Sequence[Record | None]) -> bool:
        """Runs parts again that failed before the batch was retried. False: there are none."""
        old = {
            record.uuid: part.index
            for part, record in zip(planned, records, strict=True)
            if record is not None and _is_old_end(part, record) and part.index not in self._not_revived
        }
        if not old:
            return False
        live = await self._worker.calls.run(lambda: self._worker.store.revive(list(old)))
        self._not_revived |= {index for uuid, index in old.items() if uuid not in live}
        return True

    async def _reopen(self, state: BatchState) -> None:
        """Finds the parts that were revived together with a batch that had been cancelled.

        Such a batch could not write down that it was over. Its parts show it: they have attempts before a revive.
        """
        planned = state.planned()
        for start in range(0, len(planned), MAX_PARTS):
            page = planned[start : start + MAX_PARTS]
            pairs = zip(page, await self._records(page), strict=True)
            revived = [(part, record) for part, record in pairs if record is not None and record.history.earlier]
            if revived:
                state.reopen(part.index for part, record in revived if _runs_again(part, record))

    # -- parts that have ended

    async def _ended(self, state: BatchState, part: PlannedPart, record: Record) -> StoredPart:
        stored = StoredPart(
            index=part.index,
            size=part.size,
            attempt=record.attempt,
            round=state.round,
            ended=record.history.ended,
        )
        if record.state != "succeeded":
            return replace(stored, error=stored_failure(failure_of(record, record.uuid)))
        try:
            return await self._selected(state, stored, self._items(record))
        except (ResultNotEncodable, TaskError, Undecodable) as error:
            name = type(error).__name__ if isinstance(error, TaskError) else "ValueError"
            failure = TaskFailure(name, str(error), "", record.attempt, record.uuid, record.source)
            return replace(stored, error=stored_failure(failure))

    async def _selected(self, state: BatchState, part: StoredPart, items: Sequence[object]) -> StoredPart:
        selector = state.selector.copy()
        if selector.comparisons(items) > _MANY_COMPARISONS:
            selection = await asyncio.to_thread(selector.select, items)
        else:
            selection = selector.select(items)
        if selection.error is not None and not selection.items:  # a retry of the batch judges its items again
            text = f"validate raised {type(selection.error).__name__}: {selection.error}"
            failure = TaskFailure(type(selection.error).__name__, text, "", part.attempt, self._uuids.of(part.index))
            return replace(part, error=stored_failure(failure))
        part = replace(part, items=Raw(self._definition.encode(selection.items)), refused=selection.refused)
        if len(write_part(part)) > _MAX_PART:
            raise ResultNotEncodable(
                f"its {len(selection.items):,} items take more than {_MAX_PART:,} bytes: make parts smaller, or keep "
                "large data elsewhere"
            )
        state.selector = selector
        return part

    def _items(self, record: Record) -> Sequence[object]:
        decode: Callable[[bytes], object] = self._definition.decode_result
        if record.source != self._definition.name:
            other = self._source.find(record.source)
            decode = _either(decode, decode_untyped_result) if other is None else other.decode_result
        items: object = read_result(record, decode)
        if not isinstance(items, Sequence) or isinstance(items, str | bytes):
            raise ResultNotEncodable(f"{record.source} returned {type(items).__name__}, and a part returns a list")
        return cast("Sequence[object]", items)

    def _streamed(self, state: BatchState, part: StoredPart) -> StoredPart:
        state.add(part)
        return replace(part, over=state.over())

    def _report(self, part: StoredPart, record: Record | None, *, is_first: bool) -> None:
        """After the part was taken over by the stream. record: None if the part was given up."""
        kind = self._request.type or self._definition.name
        observer = self._worker.observer
        ms: float | None = None
        if record is not None and record.history.started is not None and record.history.ended is not None:
            ms = record.history.ended - record.history.started
        observer.batch_part_ended(kind, "succeeded" if part.error is None else part.error.state, ms)
        if is_first and part.ended is not None:
            observer.batch_responded(kind, part.ended - self._run.record.added)

    async def _give_up(
        self, planned: Sequence[PlannedPart], records: Sequence[Record | None], number: int
    ) -> list[StoredPart]:
        """Cancels the parts that have not ended, at the deadline. number: of the round."""
        uuids = [record.uuid for record in records if record is not None]
        await self._worker.calls.run(lambda: self._worker.cancel(uuids, _DEADLINE))
        parts: list[StoredPart] = []
        for part, record in zip(planned, records, strict=True):
            if record is None and part.index >= len(self._request.sizes):
                continue  # a top-up that was not added
            attempt = 1 if record is None else record.attempt
            failure = TaskFailure("", _DEADLINE, "", attempt, self._uuids.of(part.index), state="cancelled")
            parts.append(
                StoredPart(
                    index=part.index,
                    size=part.size,
                    error=stored_failure(failure),
                    attempt=attempt,
                    round=number,
                    ended=int(self._now()),
                )
            )
        return parts

    # -- waiting

    def _now(self) -> float:
        """The time of the store is not before this."""
        return max(self._worker.store.earliest_now(), self._run.record.due)

    def _time_left(self, state: BatchState) -> int | None:
        """Ms to the deadline; None: there is none. Nobody waits for a batch that is retried later."""
        if self._request.deadline is None or state.is_retried:
            return None
        return ceil(self._run.record.added + self._request.deadline - self._now())

    async def _wait(
        self, planned: Sequence[PlannedPart], records: Sequence[Record | None], seen: int, left: int | None
    ) -> None:
        """Adds the parts that are not there, and ends this run until one more part has ended."""
        missing = [part for part, record in zip(planned, records, strict=True) if record is None]
        maker = PartMaker(self._batch, self._request, self._definition, self._source.find)
        tasks = maker.new_parts(missing)
        if tasks and maker.is_foreign:
            limits = await self._worker.calls.run(self._worker.store.limits)
            tasks = route_by(limits, tasks)
        wait = Wait(((self._batch, seen + 1),), _RECHECK if left is None else min(left, _RECHECK))
        raise Suspension(Suspended(self._run.lease, wait, Effects(tuple(tasks)) if tasks else None))


def _is_old_end(part: PlannedPart, record: Record) -> bool:
    """It failed before the batch was retried, and has not run since."""
    before = part.before
    return before is not None and record.state in ("failed", "cancelled") and record.attempt <= before.attempt


def _runs_again(part: PlannedPart, record: Record) -> bool:
    """It was streamed as failed, and has been revived since."""
    before = part.before
    return before is not None and before.error is not None and record.attempt > before.attempt


def _by_end(pair: tuple[PlannedPart, Record | None]) -> tuple[int, int]:
    part, record = pair
    ended = None if record is None else record.history.ended
    return ended or 0, part.index


def _either(first: Callable[[bytes], object], second: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def decode(data: bytes) -> object:
        try:
            return first(data)
        except Undecodable:
            return second(data)

    return decode
