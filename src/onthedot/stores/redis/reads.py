"""Reads of the store, in small pieces, so that a large page does not block the server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from onthedot.stores.capabilities import ServerInfo
from onthedot.stores.contract import (
    MAX_AHEAD,
    ChangePage,
    Counter,
    Lease,
    Limit,
    Note,
    NoteKind,
    Page,
    Position,
    Record,
    Schedule,
    SeriesEntry,
    SignalPage,
    State,
    StoredSignal,
)
from onthedot.stores.redis.change_rows import to_call
from onthedot.stores.redis.client import info_fields
from onthedot.stores.redis.lists import RedisLists
from onthedot.stores.redis.policy_format import remember_policy
from onthedot.stores.redis.position import PositionAnswer, to_limit, to_position
from onthedot.stores.redis.record_format import seq_bytes, to_result, to_seen_record, unpack_message
from onthedot.stores.redis.schedule_format import to_schedules
from onthedot.stores.redis.series_format import to_entries
from onthedot.stores.redis.uuid_format import pack_each_uuid, pack_uuid, to_uuid
from onthedot.stores.rules.change_log import choose_newest
from onthedot.stores.rules.filters import fits
from onthedot.stores.rules.pages import Candidate, Key, PageBuilder
from onthedot.stores.rules.records import with_history, with_state

_PIECE = 200  # records per script
_MOST_CHECKED = 5_000  # records per find
_MOST_REPAIRED = 200_000  # records that are searched for tasks in no place
_BLOCK = 1_000  # seqs per field of `seq_blocks`
_RESOLVED = 1_000  # seqs per script


class _SeenRows(NamedTuple):
    """The answer of `lua/verbs/get.lua`."""

    now: bytes
    policies: Sequence[bytes]  # digest and text in turn
    seqs: Sequence[bytes]
    tasks: Sequence[bytes | None]  # None: it does not exist
    histories: Sequence[bytes | None]
    states: Sequence[bytes]
    running: Sequence[Any]  # the number in the request, from 1, the session and the start in turn


class RedisReads(ABC):
    """The reading half of the store."""

    @abstractmethod
    async def _call(self, verb: str, *args: Any) -> Any:
        """Run a script."""

    @abstractmethod
    async def _command(self, command: str, key: str, *args: Any) -> Any:
        """Run a command on a key."""

    async def get(self, uuids: Sequence[str]) -> list[Record | None]:
        found: list[Record | None] = []
        for start in range(0, len(uuids), _PIECE):
            found += await self._read("uuids", pack_each_uuid(uuids[start : start + _PIECE]))
        return found

    async def results(self, uuids: Sequence[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for start in range(0, len(uuids), _PIECE):
            now, histories = await self._call("results", *pack_each_uuid(uuids[start : start + _PIECE]))
            moment = float(now)
            found += [None if history is None else to_result(history, moment) for history in histories]
        return found

    async def _read(self, by: str, names: Sequence[bytes]) -> list[Record | None]:
        """The record of each name; None: it does not exist, or its uuid cannot be read."""
        rows = _SeenRows(*await self._call("get", by, *names))
        for digest, text in zip(rows.policies[::2], rows.policies[1::2], strict=True):
            remember_policy(digest.decode(), text)
        now = float(rows.now)
        found: list[Record | None] = [
            None if task is None else to_seen_record(seq, task, history, state.decode(), now)
            for seq, task, history, state in zip(rows.seqs, rows.tasks, rows.histories, rows.states, strict=True)
        ]
        for number, session, started in zip(*[iter(rows.running)] * 3, strict=True):
            index: int = number - 1
            record = found[index]
            if record is not None:
                found[index] = _as_running(record, session.decode(), started)
        return found

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        builder = PageBuilder(where, after, limit, _MOST_CHECKED)
        lists = RedisLists(self._call, self._command, where)
        if builder.needs_fence:
            builder.fence = int(await self._command("HGET", "sequences", "fence") or 0)
        while (request := builder.next_request()) is not None:
            keys, is_over = await lists.keys(request)
            records = await self._records([seq for _, seq in keys])
            candidates = [Candidate(*key, _time(key, records)) for key in keys]
            matching = {seq: record for seq, record in records.items() if fits(record, where)}
            builder.take(request, candidates, matching, is_over=is_over)
        return builder.page()

    async def _records(self, seqs: Sequence[int]) -> dict[int, Record]:
        found: dict[int, Record] = {}
        for start in range(0, len(seqs), _PIECE):
            for record in await self._read("seqs", seq_bytes(seqs[start : start + _PIECE])):
                if record is not None:
                    found[record.seq] = record
        return found

    async def _all_seqs(self) -> Iterator[list[int]]:
        """The seqs of blocks that have records, newest first."""
        blocks = sorted((int(name) * _BLOCK for name in await self._command("HKEYS", "seq_blocks")), reverse=True)
        return (piece for block in blocks for piece in _in_pieces(range(block + _BLOCK - 1, block - 1, -1)))

    async def unplaced(self, *, requeue: bool = False) -> list[str]:
        """See `Repairable`."""
        found: list[str] = []
        checked = 0
        for piece in await self._all_seqs():
            checked += len(piece)
            if checked > _MOST_REPAIRED:
                break
            uuids = await self._call("repair", "requeue" if requeue else "list", *seq_bytes(piece))
            found += [to_uuid(uuid) for uuid in uuids]
        if requeue:
            await self._call("repair", "lanes")
        if requeue and checked <= _MOST_REPAIRED:  # one script: the server does nothing else meanwhile
            await self._call("repair", "tally")
        return found

    async def set_aside(self) -> list[bytes]:
        """See `Repairable`."""
        kept = dict(_pairs(await self._command("HGETALL", "undecodable")))
        return [data for seq, data in kept.items() if await self._command("HGET", "task", seq) is None]

    async def notes(self, uuid: str, after: int, limit: int, kind: NoteKind | None = None) -> list[tuple[int, Note]]:
        found: list[tuple[int, Note]] = []
        for field, packed in _pairs(await self._call("notes", pack_uuid(uuid), after, limit, kind or "")):
            kind_text, _, name = field.decode().partition(":")
            (number, fence, session), data = unpack_message(packed)
            found.append((number, Note(Lease(uuid, fence, session), _note_kind(kind_text), name, data)))
        return found

    async def signals(self, name: str, after: int, limit: int) -> SignalPage:
        value, rows = await self._call("signals", name, after, limit)
        found = [StoredSignal(int(number), signal_id.decode(), payload) for number, signal_id, payload in rows]
        return SignalPage(int(value), found)

    async def signal_names(self, limit: int) -> list[str]:
        names: list[bytes] = await self._call("signal_names", limit)
        return [name.decode() for name in names]

    async def counters(self, names: Sequence[str]) -> list[Counter]:
        values, failures = await self._call("counters", *names)
        return [Counter(int(value or 0), int(failed or 0)) for value, failed in zip(values, failures, strict=True)]

    async def read_series(
        self, series: str, since: int, until: int, limit: int, *, newest_first: bool = False
    ) -> Sequence[SeriesEntry]:
        keys, values = await self._call("read_series", series, since, until, limit, int(newest_first))
        return to_entries(series, keys, values)

    async def tally(self) -> dict[tuple[str, State], int]:
        tally: dict[tuple[str, State], int] = {}
        for field, number in _pairs(await self._command("HGETALL", "tally")):
            source, _, state = field.decode().rpartition(":")
            tally[source, _state(state)] = int(number)
        return tally

    async def schedules(self) -> list[Schedule]:
        schedules, rules = await self._call("schedules")
        rule = dict(_pairs(rules))
        return to_schedules((name, packed, rule.get(name, b"")) for name, packed in _pairs(schedules))

    async def limits(self) -> list[Limit]:
        return [to_limit(field, packed) for field, packed in _pairs(await self._command("HGETALL", "limits"))]

    async def sessions(self) -> dict[str, bytes]:
        workers, leases = await self._call("sessions")
        alive = set(leases)
        return {name.decode(): info for name, info in _pairs(workers) if name in alive}

    async def server(self) -> ServerInfo:
        now, server, memory = await self._call("server_info")
        info = info_fields(server) | info_fields(memory)
        kind = "valkey" if "valkey_version" in info else "redis"
        program = f"{kind.capitalize()} {info[f'{kind}_version']}"
        return ServerInfo(float(now), program, int(info["used_memory"]), int(info["maxmemory"]))

    async def position(self, uuid: str) -> Position | None:
        answer = await self._call("position", pack_uuid(uuid), MAX_AHEAD)
        return None if answer is None else to_position(PositionAnswer(*answer))

    async def changes(self, after: str, limit: int, resolve: int = 0) -> ChangePage:
        if not after:
            return ChangePage([], str(await self._last_change()))
        last = int(after)
        rows = await self._command("XRANGE", "changes", f"({last}", "+", "COUNT", limit)
        if not rows:
            end = await self._last_change()
            return ChangePage([], str(min(last, end)), gap=end < last)
        calls = [to_call(dict(_pairs(fields))) for _, fields in rows]
        uuids = await self._resolve(choose_newest(calls, resolve))
        first, *_ = numbers = [int(number.partition(b"-")[0]) for number, _ in rows]
        gap = first - calls[0].number != last
        return ChangePage([call.to_entry(uuids) for call in calls], str(numbers[-1]), gap)

    async def _last_change(self) -> int:
        return int(await self._command("HGET", "sequences", "transitions") or 0)

    async def _resolve(self, seqs: Sequence[bytes]) -> dict[bytes, str]:
        """The uuid of each task that is not deleted."""
        uuids: dict[bytes, str] = {}
        for start in range(0, len(seqs), _RESOLVED):
            piece = seqs[start : start + _RESOLVED]
            found = zip(piece, await self._call("resolve_ids", *piece), strict=True)
            uuids.update((seq, to_uuid(uuid)) for seq, uuid in found if uuid)
        return uuids


def _time(key: Key, records: Mapping[int, Record]) -> int:
    """When the order is that of adding, the key has no time."""
    moment, seq = key
    record = records.get(seq)
    return record.added if not moment and record is not None else moment


def _note_kind(text: str) -> NoteKind:
    kind: NoteKind = msgspec.convert(text, NoteKind)
    return kind


def _state(text: str) -> State:
    state: State = msgspec.convert(text, State)
    return state


def _in_pieces(numbers: Sequence[int]) -> Iterator[list[int]]:
    return (list(numbers[start : start + _PIECE]) for start in range(0, len(numbers), _PIECE))


def _pairs(answer: Any) -> Iterator[tuple[bytes, bytes]]:
    """Of HGETALL: a list, or a dict of redis-py."""
    if isinstance(answer, dict):
        yield from answer.items()
    else:
        yield from zip(answer[::2], answer[1::2], strict=True)


def _as_running(record: Record, session: str, started: int) -> Record:
    return with_state(record, "running", with_history(record.history, session=session, started=started))
