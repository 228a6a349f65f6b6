"""Tasks with links, for the engine: results of predecessors are read into the body before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from onthedot.codec.annotations import write
from onthedot.codec.body import Inputs, StoredBody, Undecodable
from onthedot.codec.results import read_failure, store_failure, store_many
from onthedot.codec.task_failure import TaskFailure
from onthedot.errors import Cancel, Reject, ResultExpired, ResultNotStored, StoreError
from onthedot.model.batch_names import batch_task
from onthedot.model.failures import NOT_STORED, decode_failure, encode_reason
from onthedot.model.flow_names import MEMBER_KEEP, MemberUuids, is_start_signal, start_signal
from onthedot.model.streams import is_reference, streamed_items
from onthedot.operations.children import effects_of_cancel, stop_task
from onthedot.operations.flows import FlowOperations
from onthedot.operations.streams import with_items
from onthedot.stores.contract import (
    BATCH,
    Completed,
    Effects,
    Ended,
    Outcome,
    Record,
    Store,
    Suspended,
)

MAX_RESULTS = 64 << 20  # bytes that are passed to one task
_INPUTS = b'"inputs":'


class _MemberHeaders(Struct):
    inputs: Inputs | None = None


_read_headers = msgspec.json.Decoder(_MemberHeaders).decode
_read_body = msgspec.json.Decoder(StoredBody).decode


def read_inputs(body: bytes) -> Inputs | None:
    """The inputs of a member; None: it needs none, or its body cannot be read."""
    if _INPUTS not in body:
        return None
    try:
        return _read_headers(body).inputs
    except msgspec.MsgspecError:
        return None


class FlowTasks:
    """The meaning of links, for the engine. Implements `LinkedTasks`."""

    def __init__(
        self,
        store: Store,
        flows: FlowOperations,
        new_uuid: Callable[[], str],
        decoder: Callable[[str], Callable[[bytes], object]],
    ) -> None:
        """decoder: of results, by source."""
        self._store = store
        self._decoder = decoder
        self._flows = flows
        self._new_uuid = new_uuid

    def has_inputs(self, record: Record) -> bool:
        if _INPUTS not in record.body:  # most members of most groups
            return False
        inputs = read_inputs(record.body)
        return inputs is not None and bool(inputs.args or inputs.failures or inputs.starts)

    async def prepare(self, record: Record) -> Record:
        inputs = read_inputs(record.body)
        if inputs is None:
            return record
        if inputs.starts and not (await self._store.counters([start_signal(inputs.flow)]))[0].value:
            raise Cancel("its flow was never completely added")
        results: dict[str, Raw] = {}
        if inputs.args:
            results |= await self._results(record, inputs)
        if inputs.failures:
            failure = Raw(store_failure(await self._first_failure(inputs.flow)))
            results |= dict.fromkeys(inputs.failures, failure)
        if not results:
            return record
        try:
            body = _read_body(record.body)
        except msgspec.MsgspecError as error:
            raise Undecodable(f"{record.source}: the stored arguments cannot be read: {error}") from error
        return replace(record, body=write(replace(body, results=(body.results or {}) | results)))

    async def _results(self, record: Record, inputs: Inputs) -> dict[str, Raw]:
        numbers = {number for reference in inputs.args.values() for number in _numbers(reference)}
        found = await self._read(record, inputs, sorted(numbers))
        results: dict[str, Raw] = {}
        for name, reference in inputs.args.items():
            if isinstance(reference, int):
                results[name] = Raw(found[reference] or b"{}")
                continue
            items: list[bytes] = []
            for item in reference:
                items += [write(item)] if isinstance(item, dict) else [found[number] for number in _numbers([item])]
            results[name] = Raw(store_many(items))
        return results

    async def _read(self, record: Record, inputs: Inputs, numbers: Sequence[int]) -> dict[int, bytes]:
        """The stored results of members, in pages."""
        uuids = MemberUuids(inputs.flow)
        found: dict[int, bytes] = {}
        size = 0
        for start in range(0, len(numbers), BATCH):
            page = numbers[start : start + BATCH]
            stored = await self._stored_results(list(map(uuids.of, page)), collects=inputs.collects)
            found.update(zip(page, stored, strict=True))
            size += sum(map(len, stored))
            if size > MAX_RESULTS:
                raise Reject(
                    f"{record.source}: the results of its {len(numbers):,} predecessors take more than "
                    f"{MAX_RESULTS >> 20} MiB; let it follow them with .after(group), and read them with `async "
                    "for result in ctx.results()`"
                )
        return found

    async def _stored_results(self, uuids: Sequence[str], *, collects: bool) -> list[bytes]:
        """The stored result of each member. The record of one that has none of its own decides what takes its place."""
        stored = list(await self._store.results(uuids))
        others = [
            index
            for index, data in enumerate(stored)
            if data is None or (data and (data == NOT_STORED or is_reference(data)))  # b"" is None
        ]
        records = await self._get([uuids[index] for index in others]) if others else ()
        for index, record in zip(others, records, strict=True):
            stored[index] = _stored_result(uuids[index], record, collects=collects)
        return [data for data in stored if data is not None]

    async def results(self, record: Record, page: int) -> Sequence[object]:
        inputs = read_inputs(record.body)
        if inputs is None:
            return ()
        numbers = list(islice(_numbers(inputs.after), page * BATCH, (page + 1) * BATCH))
        names = list(map(MemberUuids(inputs.flow).of, numbers))
        return [
            self._value(name, member, collects=inputs.collects)
            for name, member in zip(names, await self._get(names), strict=True)
        ]

    async def _get(self, uuids: Sequence[str]) -> Sequence[Record | None]:
        """Records with their results; that of a stream is in its items."""
        records = list(await self._store.get(uuids))
        for index, record in enumerate(records):
            if record is not None and streamed_items(record) is not None:
                records[index] = await with_items(self._store, record)
        return records

    def _value(self, uuid: str, record: Record | None, *, collects: bool) -> object:
        data = _stored_result(uuid, record, collects=collects)
        failure = read_failure(data)
        if failure is not None or record is None:
            return failure
        return self._decoder(record.source)(data)

    async def _first_failure(self, flow: str) -> TaskFailure:
        record = await self._flows.first_failure(flow)
        if record is None:
            (record,) = await self._store.get([flow])
        return failure_of(record, flow)

    def adjust(self, record: Record, outcome: Outcome, *, cancelled: bool = False) -> Outcome:
        links = record.links
        assert links is not None
        if not isinstance(outcome, Ended):
            if cancelled and isinstance(outcome, Completed | Suspended) and outcome.effects is not None:
                return replace(outcome, effects=None)
            return outcome
        if cancelled and batch_task(record.source) is not None:  # its parts end with it
            stop = stop_task(self._new_uuid(), record.uuid, parent=f"{record.source} {record.uuid}")
            return replace(outcome, effects=Effects((stop,)))
        if links.flow is None:
            if record.history.reason == "upstream":  # a handler that is not needed leaves no trace
                return replace(outcome, keep=0)
            return outcome
        outcome = replace(outcome, keep=max(outcome.keep, MEMBER_KEEP))
        inputs = read_inputs(record.body)
        if inputs is None or not inputs.stops or cancelled or record.history.reason == "cancel":
            return outcome
        stop = stop_task(self._new_uuid(), inputs.flow, member=f"{record.source} {record.uuid}")
        return replace(outcome, effects=Effects((stop,)))

    async def effects_of_cancel(self, chores: Sequence[Record]) -> Mapping[str, Effects]:
        return await effects_of_cancel(self._store, chores, {}, self._new_uuid)

    async def reasons(self, chores: Sequence[Record]) -> Mapping[str, str]:
        reasons: dict[str, str] = {}
        causes: dict[str, str] = {}
        for record in chores:
            waits = None if record.links is None else record.links.waits
            if waits is None or record.links is None:
                continue
            if record.history.reason == "expired" and is_start_signal(waits.counters[0][0]):
                reasons[record.uuid] = "its flow was never completely added"
            elif record.history.reason == "upstream":
                inputs = read_inputs(record.body)
                flow = record.links.flow if inputs is None else inputs.flow
                if flow is not None and flow not in causes:
                    causes[flow] = await self._cause(flow)
                reasons[record.uuid] = "upstream" if flow is None else causes[flow]
        return reasons

    async def _cause(self, flow: str) -> str:
        try:
            record = await self._flows.first_failure(flow)
        except StoreError:  # the chore must end; the cause only informs
            return "upstream"
        if record is None:
            return "upstream: a task of its flow did not succeed"
        failure = failure_of(record, flow)
        text = f"{failure.type}: {failure.message}" if failure.type else failure.message
        return f"upstream: {record.source} {record.uuid} {failure.state}: {text}"


def failure_of(record: Record | None, uuid: str) -> TaskFailure:
    """The end of a task that did not succeed, as a value; without its traceback, which its own record has."""
    if record is None:
        return TaskFailure("", "its record is no longer kept", uuid=uuid, state="cancelled")
    stored = decode_failure(record.history.error or encode_reason("cancelled", record.attempt))
    assert stored is not None
    state: Literal["failed", "cancelled"] = "failed" if record.state == "failed" else "cancelled"
    return TaskFailure(stored.type, stored.message, "", stored.attempt, record.uuid, record.source, state)


def _stored_result(uuid: str, record: Record | None, *, collects: bool) -> bytes:
    if record is None:
        raise ResultExpired(f"task {uuid}, whose result is an argument, is no longer kept")
    if record.state != "succeeded":
        if collects:
            return store_failure(failure_of(record, uuid))
        raise Cancel(f"{record.source} {uuid}, whose result is an argument, is {record.state} again: retry the flow")
    if record.history.result is None:
        raise ResultExpired(f"the result of {record.source} {uuid}, which is an argument, is no longer kept")
    if record.history.result == NOT_STORED:
        raise ResultNotStored(
            f"the result of {record.source} {uuid}, which is an argument, could not be stored; the worker's log tells "
            "why"
        )
    return record.history.result


def _numbers(reference: Any) -> Iterable[int]:
    """The members that an argument or an element of it refers to."""
    if isinstance(reference, int):
        yield reference
        return
    for item in reference:
        if isinstance(item, list):
            first, last = cast("list[int]", item)
            yield from range(first, last + 1)
        elif isinstance(item, int):
            yield item
