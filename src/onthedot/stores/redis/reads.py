"""Looking: reads only, in pieces that are small for the server, so that a slow page never stops the queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from onthedot.stores.capabilities import ServerInfo
from onthedot.stores.contract import (
    MAX_AHEAD,
    ChangeEntry,
    ChangePage,
    Lease,
    Limit,
    Note,
    Page,
    Position,
    Record,
    Schedule,
    State,
    Transition,
)
from onthedot.stores.redis.client import fields
from onthedot.stores.redis.position import to_limit, to_standing
from onthedot.stores.redis.record_format import remember_policy, seq_bytes, to_note, to_record, to_schedule
from onthedot.stores.redis.uuid_format import pack_uuid, to_uuid, to_uuids
from onthedot.stores.rules.filters import check, fits
from onthedot.stores.rules.records import with_history, with_state

_PIECE = 200  # records a script looks at
_LOOK = 5_000  # records a find looks at
_BLOCK = 1_000  # numbers that a block of `blocks` stands for
_END = 2**40


class RedisReads(ABC):
    """The half of the store that reads."""

    @abstractmethod
    async def _call(self, verb: str, *args: Any) -> Any:
        """A script."""

    @abstractmethod
    async def _do(self, command: str, key: str, *args: Any) -> Any:
        """A command on a key."""

    async def get(self, uuids: Sequence[str]) -> list[Record | None]:
        found: list[Record | None] = [None] * len(uuids)
        for start in range(0, len(uuids), _PIECE):
            wanted = [pack_uuid(uuid) for uuid in uuids[start : start + _PIECE]]
            for address, record in await self._look("uuids", wanted):
                found[start + address] = record
        return found

    async def _look(self, by: str, wanted: Sequence[bytes]) -> list[tuple[int, Record]]:
        rows, now, policies = await self._call("get", by, *wanted)
        for digest, text in zip(policies[::2], policies[1::2], strict=True):
            remember_policy(digest, text)
        return [(row[0] - 1, _seen(row, float(now))) for row in rows]

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        check(where)
        rows: list[Record] = []
        looked = 0
        for piece in await self._candidates(where, int(after) if after else _END):
            if looked >= _LOOK or len(rows) >= limit:
                return Page(rows, str(piece[0] + 1))
            looked += len(piece)
            for _, record in await self._look("seqs", seq_bytes(piece)):
                if fits(record, where):
                    if len(rows) == limit:
                        return Page(rows, str(record.seq + 1))
                    rows.append(record)
        return Page(rows, None)

    async def _candidates(self, where: Mapping[str, str], before: int) -> Iterator[list[int]]:
        """Numbers that may be of records, newest first: of what is held, or of blocks that have any."""
        if where.get("state") == "running":
            leased = (int.from_bytes(seq, "big") for seq in await self._do("HKEYS", "leased") if len(seq) == 6)
            return _in_pieces(sorted((number for number in leased if number < before), reverse=True))
        blocks = sorted((int(name) * _BLOCK for name in await self._do("HKEYS", "seq_blocks")), reverse=True)
        ranges = (range(min(block + _BLOCK, before) - 1, block - 1, -1) for block in blocks)
        return (piece for numbers in ranges for piece in _in_pieces(numbers))

    async def notes(self, uuid: str, after: int, limit: int) -> list[tuple[int, Note]]:
        seq = await self._do("HGET", "ids", pack_uuid(uuid))
        if seq is None:
            return []
        found: list[tuple[int, Note]] = []
        for field, packed in _pairs(await self._do("HGETALL", f"journal:{int.from_bytes(seq, 'big')}")):
            kind, _, name = field.decode().partition(":")
            number, fence, session, data = to_note(packed)
            note = Note(Lease(uuid, fence, session), "error" if kind == "error" else "progress", name, data)
            found.append((number, note))
        found.sort(key=lambda entry: entry[0])
        return [entry for entry in found if entry[0] > after][:limit]

    async def tally(self) -> dict[tuple[str, State], int]:
        tally: dict[tuple[str, State], int] = {}
        for field, number in _pairs(await self._do("HGETALL", "tally")):
            source, _, state = field.decode().rpartition(":")
            tally[source, _state(state)] = int(number)
        return tally

    async def schedules(self) -> list[Schedule]:
        schedules, rules = await self._call("schedules")
        rule = dict(_pairs(rules))
        return [to_schedule(name, packed, rule[name]) for name, packed in _pairs(schedules)]

    async def limits(self) -> list[Limit]:
        return [to_limit(field, packed) for field, packed in _pairs(await self._do("HGETALL", "limits"))]

    async def sessions(self) -> dict[str, bytes]:
        workers, leases = await self._call("sessions")
        alive = set(leases)
        return {name.decode(): info for name, info in _pairs(workers) if name in alive}

    async def server(self) -> ServerInfo:
        now, about, memory = await self._call("server_info")
        said = fields(about) | fields(memory)
        kind = "valkey" if "valkey_version" in said else "redis"
        program = f"{kind.capitalize()} {said[f'{kind}_version']}"
        return ServerInfo(float(now), program, int(said["used_memory"]), int(said["maxmemory"]))

    async def position(self, uuid: str) -> Position | None:
        answer = await self._call("position", pack_uuid(uuid), MAX_AHEAD)
        return None if answer is None else to_standing(answer)

    async def changes(self, after: str, limit: int) -> ChangePage:
        if not after:
            return ChangePage([], (await self._do("HGET", "sequences", "transitions") or b"0").decode())
        entries = await self._do("XRANGE", "changes", f"({after}", "+", "COUNT", limit)
        rows = [(number.decode().partition("-")[0], dict(_pairs(fields))) for number, fields in entries]
        seqs = {seq for _, row in rows for field, what in row.items() for seq in _seqs(field, what)}
        names = await self._names(sorted(seqs))
        found = [ChangeEntry(number, list(_transitions(row, names))) for number, row in rows]
        return ChangePage(found, found[-1].cursor if found else after)

    async def _names(self, seqs: Sequence[bytes]) -> dict[bytes, tuple[str, str]]:
        names: dict[bytes, tuple[str, str]] = {}
        for start in range(0, len(seqs), 1000):
            piece = seqs[start : start + 1000]
            answer = await self._call("resolve_ids", *piece)
            for seq, uuid, source in zip(piece, answer[::2], answer[1::2], strict=True):
                if uuid:
                    names[seq] = to_uuid(uuid), source.decode()
        return names


def _transitions(row: dict[bytes, bytes], names: Mapping[bytes, tuple[str, str]]) -> Iterator[Transition]:
    """Tasks that were purged since are left out."""
    at = int(row.pop(b"at"))
    for field, what in row.items():
        if field.startswith(b"gone:"):
            _, state, source = field.decode().split(":", 2)
            yield from (Transition(at, uuid, source, _state(state)) for uuid in to_uuids(what))
        else:
            state = _state(field.decode().removeprefix("run:"))
            yield from (Transition(at, *names[seq], state) for seq in _seqs(field, what) if seq in names)


def _state(text: str) -> State:
    state: State = msgspec.convert(text, State)
    return state


def _seqs(field: bytes, what: bytes) -> list[bytes]:
    """Of an entry of the change feed. Of consecutive seqs ("run:") it has the first and the last."""
    if field == b"at" or field.startswith(b"gone:"):
        return []
    seqs = [what[start : start + 6] for start in range(0, len(what), 6)]
    if field.startswith(b"run:"):
        numbers = [int.from_bytes(seq, "big") for seq in seqs]
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return [seq for first, last in pairs for seq in seq_bytes(range(first, last + 1))]
    return seqs


def _in_pieces(numbers: Sequence[int]) -> Iterator[list[int]]:
    return (list(numbers[start : start + _PIECE]) for start in range(0, len(numbers), _PIECE))


def _pairs(answer: Any) -> Iterator[tuple[bytes, bytes]]:
    """Of HGETALL, whichever way the protocol gives them."""
    yield from answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)


def _seen(row: Sequence[Any], now: float) -> Record:
    _, seq, asked, history, state, session, started = row
    record = to_record(seq, asked, history, state.decode(), now)
    if state != b"running":
        return record
    return with_state(record, "running", with_history(record.history, session=session.decode(), started=started))
