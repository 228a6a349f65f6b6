"""The lists of `find`: keys of tasks in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from heapq import nlargest
from typing import Any, assert_never

from onthedot.stores.redis.record_format import seq_bytes
from onthedot.stores.redis.uuid_format import uuid_beginning
from onthedot.stores.rules.pages import MOST_NAMED, Candidate, Key, ReadRequest, in_order, is_behind, source_of

_Keys = tuple[list[Key], bool | None]
"""Keys; whether they are the last ones (None: if there are fewer than the request asks for)."""


class RedisLists:
    def __init__(
        self,
        call: Callable[..., Awaitable[Any]],
        command: Callable[..., Awaitable[Any]],
        where: Mapping[str, str],
    ) -> None:
        """call: runs a script. command: runs a command on a key."""
        self._call = call
        self._command = command
        self._where = where

    async def keys(self, request: ReadRequest) -> _Keys:
        where = self._where
        match request.name:
            case "added":
                return await self._added(request)
            case "named":
                return await self._named(request)
            case "running":
                return _newest(request, await self._command("HKEYS", "leased"))
            case "flow":
                return _newest(request, await self._command("SMEMBERS", f"flow:{where['flow']}"))
            case "flows":
                return _newest(request, await self._command("SMEMBERS", "flows"))
            case "waiters":
                return _newest(request, await self._command("ZRANGE", f"waiters:{where['waits_for']}", 0, -1))
            case "unqueued" | "waiting" | "scheduled":
                return await self._queued(request, "")
            case "ready":
                return await self._queued(request, source_of(where) or "")
            case "parked":
                return await self._queued(request, where.get("lane", ""))
            case "ended":
                return await self._ended(request)
            case _:
                assert_never(request.name)

    async def _list(self, request: ReadRequest, name: str, filter_name: str = "") -> Any:
        moment, seq = request.after or (0, 0)
        packed = b"" if request.after is None else seq_bytes([seq])[0]
        return await self._call("list", name, moment, packed, request.size, filter_name)

    async def _added(self, request: ReadRequest) -> _Keys:
        seqs, is_over = await self._list(request, "added")
        return [(0, int.from_bytes(seq, "big")) for seq in seqs], bool(is_over)

    async def _named(self, request: ReadRequest) -> _Keys:
        """By the time of the uuid, if it has one; any other is found by a scan, newest first."""
        beginning = uuid_beginning(self._where["uuid"])
        if beginning is not None and request.after is None:
            packed, time = beginning
            seqs = await self._call("find_named", packed, time, MOST_NAMED)
            if seqs:
                keys, _ = _newest(request, seqs)
                return keys, len(keys) == len(seqs)
        return await self._added(request)

    async def _queued(self, request: ReadRequest, filter_name: str) -> _Keys:
        answer = await self._list(request, request.name, filter_name)
        found = [
            (int(float(moment)), int.from_bytes(seq, "big"))
            for seq, moment in zip(answer[::2], answer[1::2], strict=True)
        ]
        return _first(request, found), None

    async def _ended(self, request: ReadRequest) -> _Keys:
        source = source_of(self._where)
        state = self._where["state"]
        answer = await self._list(request, "ended", state if source is None else f"{state}:{source}")
        found: list[Key] = []
        for moment, packed in zip(answer[::2], answer[1::2], strict=True):
            ended = int(float(moment))
            found += [(ended, int.from_bytes(packed[start : start + 6], "big")) for start in range(0, len(packed), 6)]
        return _first(request, found), None


def _newest(request: ReadRequest, seqs: Iterable[bytes]) -> _Keys:
    """Of seqs in any order. Bytes are compared as they are stored: of a flow, each page looks at all of them."""
    if request.after is not None:
        (behind,) = seq_bytes([request.after[1]])
        seqs = (seq for seq in seqs if seq < behind)
    newest = nlargest(request.size, (seq for seq in seqs if len(seq) == 6))
    return [(0, int.from_bytes(seq, "big")) for seq in newest], None


def _first(request: ReadRequest, keys: list[Key]) -> list[Key]:
    candidates = [Candidate(*key, 0) for key in keys if is_behind(request.name, key, request.after)]
    return [each[:2] for each in in_order(request.name, candidates, None, request.size)]
