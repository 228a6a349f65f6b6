"""What an operator does, over the store contract alone: no user code is needed. Thin doors call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict, Unpack

from onthedot.clock import to_ms
from onthedot.errors import TaskNotFound
from onthedot.limits import key_text
from onthedot.outcome import write_reason
from onthedot.stores.contract import Ended, Lease, Limit, Record, Store
from onthedot.task import TaskInfo
from onthedot.views import as_info

_KEEP = 7 * 86_400_000
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Found:
    """A page of tasks, newest first, and the cursor of the next."""

    tasks: tuple[TaskInfo, ...]
    cursor: str | None

    def __iter__(self) -> Iterator[TaskInfo]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)


class Where(TypedDict, total=False):
    """Filters of ``find``. error: a part of the error's type or message."""

    state: str
    source: str
    tag: str
    since: datetime
    error: str
    limit: int
    cursor: str | None


class Operations:
    def __init__(self, store: Store, client: str) -> None:
        self._store = store
        self._client = client

    async def get(self, uuid: str) -> TaskInfo:
        """By uuid, or by an unambiguous beginning of one."""
        (record,) = await self._store.get((uuid,))
        if record is None:
            record = await self._by_prefix(uuid)
        notes = await self._store.notes(record.uuid, 0, 1000)
        return as_info(record, [note for _, note in notes])

    async def _by_prefix(self, prefix: str) -> Record:
        found = [record async for record in self._records({"uuid": prefix}, most=2)]
        if not found:
            raise TaskNotFound(f"no task {prefix}: never added here, or no longer kept")
        if len(found) > 1:
            raise TaskNotFound(
                f"{prefix} is the beginning of several uuids, {found[0].uuid} and {found[1].uuid} among them"
            )
        return found[0]

    async def find(self, **where: Unpack[Where]) -> Found:
        """Newest first."""
        limit, cursor, error = where.get("limit", _PAGE), where.get("cursor"), where.get("error")
        plain = (("state", where.get("state")), ("source", where.get("source")), ("tag", where.get("tag")))
        said = {name: str(value) for name, value in plain if value is not None}
        if "since" in where:
            said["since"] = str(to_ms(where["since"]))
        rows: list[TaskInfo] = []
        while True:
            page = await self._store.find(said, cursor, limit - len(rows))
            infos = [as_info(record) for record in page.rows]
            rows += [info for info in infos if error is None or _has_error(info, error)]
            cursor = page.after
            if cursor is None or len(rows) >= limit:
                return Found(tuple(rows), cursor)

    async def _records(self, where: dict[str, str], most: int) -> AsyncIterator[Record]:
        cursor: str | None = None
        while most > 0:
            page = await self._store.find(where, cursor, most)
            for record in page.rows:
                yield record
            most -= len(page.rows)
            cursor = page.after
            if cursor is None:
                return

    async def cancel(self, *uuids: str, reason: str = "cancelled") -> int:
        """Waiting ones end at once, running ones are told. Answers how many were still alive."""
        alive = [r for r in await self._store.get(uuids) if r is not None and r.past.ended is None]
        held = await self._store.cancel(self._client, uuids, reason)
        await self._store.turn(
            self._client,
            [
                Ended(Lease(record.uuid, held.fence, self._client), "cancelled", write_reason(reason), _KEEP)
                for record in held.tasks
            ],
            None,
        )
        return len(alive)

    async def end_waiting(self, reason: str) -> int:
        """Ends all that wait: a private store is about to go."""
        ended, counts = 0, await self.counts()
        if not (counts.get("scheduled") or counts.get("ready")):
            return 0
        for state in ("scheduled", "ready", "parked"):
            cursor: str | None = None
            while True:
                page = await self._store.find({"state": state}, cursor, 1000)
                ended += await self.cancel(*[record.uuid for record in page.rows], reason=reason)
                await asyncio.sleep(0)
                cursor = page.after
                if cursor is None:
                    break
        return ended

    async def retry(self, *uuids: str) -> Sequence[str]:
        """Failed and cancelled ones run again, with their uuid. Answers with those that are alive now."""
        return await self._store.revive(uuids)

    async def pause(self, source: str, key: str | None = None, reason: str = "") -> None:
        """Nothing of the source (or of one key of it) starts until resume; what runs goes on."""
        await self._set_pause(source, key, paused=True, reason=reason)

    async def resume(self, source: str, key: str | None = None) -> None:
        await self._set_pause(source, key, paused=False, reason="")

    async def _set_pause(self, source: str, key: str | None, *, paused: bool, reason: str) -> None:
        name = source if key is None else f"{source}/{key_text(key)}"
        _, limits, _ = await self._store.state()
        mine = next((limit for limit in limits if limit.name == name and limit.by == "operator"), Limit(name))
        changed = Limit(name, mine.cap, mine.rate, mine.burst, paused, reason, by="operator")
        await self._store.put([], [changed])

    async def purge(self, limit: int = 10_000) -> int:
        """Drops what is past its retention; workers do this by themselves."""
        return await self._store.purge(limit)

    async def counts(self) -> dict[str, int]:
        """How many tasks there are, by state."""
        counts: dict[str, int] = {}
        for (_, state), count in (await self._store.tally()).items():
            shown = "ready" if state == "parked" else state
            counts[shown] = counts.get(shown, 0) + count
        return counts


def _has_error(info: TaskInfo, text: str) -> bool:
    return info.error is not None and (text in info.error.type or text in info.error.message)
