"""What an operator does, over the store contract alone: no user code is needed. Thin doors call it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime

from onthedot.clock.epoch import from_ms, to_ms
from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.model.failures import encode_reason
from onthedot.observability.logs import LogObserver
from onthedot.operations.explain import Explanation, explain
from onthedot.operations.failures import FailureGroup, group_failures
from onthedot.operations.limits import CodeDefinitions, LimitOperations
from onthedot.operations.live_view import LiveView
from onthedot.operations.move import was_moved
from onthedot.operations.schedules import ScheduleOperations
from onthedot.operations.sources import SourceInfo, source_infos, written_reason
from onthedot.operations.task_queries import MANY, PENDING
from onthedot.operations.workers import WorkerInfo, worker_info
from onthedot.stores.capabilities import HasServerInfo, ServerInfo
from onthedot.stores.contract import Ended, Lease, Limit, NewTask, Record, Store

NO_CODE = CodeDefinitions()


class Operations(LimitOperations):
    def __init__(
        self,
        store: Store,
        client: str,
        clock: Clock | None = None,
        code: CodeDefinitions = NO_CODE,
        logs: LogObserver | None = None,
    ) -> None:
        super().__init__(store, code)
        self._client = client
        self._clock = clock or SystemClock()
        self.schedules: ScheduleOperations = ScheduleOperations(store, client, self._clock, logs, code.plans)

    async def explain(self, uuid: str) -> Explanation:
        """Why a task is not running, by the rules of the claim; a beginning of its uuid is enough."""
        return await explain(self._store, await self._record(uuid), self._clock.now())

    async def failures(self, since: datetime | None = None, source: str | None = None) -> list[FailureGroup]:
        """What has failed (since then, of this source), grouped by error, the most frequent first."""
        return await group_failures(self._failed(None if since is None else to_ms(since), source))

    async def _failed(self, since: int | None, source: str | None) -> AsyncIterator[Record]:
        async for record in self.counted("failed", source):
            if since is None or record.history.ended is None or record.history.ended >= since:
                yield record

    async def workers(self) -> list[WorkerInfo]:
        """Who lives, the oldest first, and how many tasks each of them runs."""
        running = Counter([record.history.session async for record in self.counted("running")])
        return [replace(worker, running=running[worker.id]) for worker in await self.present()]

    async def present(self) -> list[WorkerInfo]:
        """Who lives, without looking for what they run."""
        sessions = await self._store.sessions()
        return [worker_info(name, info, 0) for name, info in sorted(sessions.items())]

    async def server(self) -> ServerInfo | None:
        """The program behind the store; None where the store is a part of this one."""
        return await self._store.server() if isinstance(self._store, HasServerInfo) else None

    def watch(self) -> LiveView:
        """What goes on, one picture after the other."""
        return LiveView(self._store)

    async def sources(self) -> list[SourceInfo]:
        """Every source with what waits, runs and ended, its limits and pauses, and who could run it."""
        limits = await self._store.limits()
        return source_infos(await self._store.tally(), limits, await self.present())

    async def cancel(self, *uuids: str, reason: str = "cancelled") -> int:
        """Waiting ones end at once, running ones are told. Answers how many were still alive."""
        alive = [r for r in await self._store.get(uuids) if r is not None and r.history.ended is None]
        leased = await self._store.cancel(self._client, uuids, reason)
        await self._store.turn(
            self._client,
            [
                Ended(
                    Lease(record.uuid, leased.fence, self._client),
                    "cancelled",
                    encode_reason(reason),
                    self._code.keep(record.source),
                )
                for record in leased.tasks
            ],
            None,
        )
        return len(alive)

    async def pending(self) -> list[NewTask]:
        """All that wait, as they would be added to another store."""
        return [
            NewTask(record.uuid, record.source, record.body, record.due, 0, record.lane, record.unique, record.policy)
            for state in PENDING
            async for record in self.records({"state": state}, most=None)
        ]

    async def cancel_pending(self, reason: str) -> int:
        """Ends all that wait: a private store is about to go."""
        ended, counts = 0, await self.counts()
        if not (counts.get("scheduled") or counts.get("ready")):
            return 0
        for state in PENDING:
            uuids = [record.uuid async for record in self.records({"state": state}, most=None)]
            for start in range(0, len(uuids), MANY):
                ended += await self.cancel(*uuids[start : start + MANY], reason=reason)
                await asyncio.sleep(0)
        return ended

    async def retry(self, *uuids: str) -> Sequence[str]:
        """Failed and cancelled ones run again, with their uuid. Answers with those that are alive now.

        What was moved to another store stays as it is: it would run here and there.
        """
        moved = {record.uuid for record in await self._store.get(uuids) if record is not None and was_moved(record)}
        return await self._store.revive([uuid for uuid in uuids if uuid not in moved])

    async def pause(self, source: str, key: str | None = None, reason: str = "") -> bool:
        """Nothing of the source (or of one key of it) starts until resume; what runs goes on. Was it paused before?"""
        return await self._set_pause(source, key, paused=True, reason=reason)

    async def resume(self, source: str, key: str | None = None) -> bool:
        """Was it paused before?"""
        return await self._set_pause(source, key, paused=False, reason="")

    async def _set_pause(self, source: str, key: str | None, *, paused: bool, reason: str) -> bool:
        name, mine, _ = await self._operators(source, key)
        reason = written_reason(reason, mine, from_ms(self._clock.now())) if paused else ""
        changed = Limit(name, mine.cap, mine.rate, mine.burst, paused, reason, owner="operator")
        await self._store.put_limits([changed])
        return mine.paused

    async def purge(self, limit: int = 10_000) -> int:
        """Drops what is past its retention; workers do this by themselves."""
        return await self._store.purge(limit, self._code.most_kept)

    async def counts(self) -> dict[str, int]:
        """How many tasks there are, by state."""
        counts: Counter[str] = Counter()
        for by_state in (await self.by_source()).values():
            counts.update(by_state)
        return dict(counts)

    async def by_source(self) -> dict[str, dict[str, int]]:
        """How many tasks there are, by source and state."""
        sources: dict[str, Counter[str]] = {}
        for (source, state), count in (await self._store.tally()).items():
            sources.setdefault(source, Counter())["ready" if state == "parked" else state] += count
        return {source: dict(counts) for source, counts in sources.items()}
