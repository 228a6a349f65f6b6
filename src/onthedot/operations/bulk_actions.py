"""Cancel or retry many tasks, at a rate. The audit entry has the progress, so every process can show and stop it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from msgspec.structs import replace

from onthedot.errors import OnTheDotError
from onthedot.operations.audit import Actor, AuditEntry, AuditOperations, AuditRecord
from onthedot.operations.task_queries import TaskFilter, TaskQueries

_log = logging.getLogger("onthedot.operations")
BulkVerb = Literal["cancel", "retry"]
MAX_TASKS = 100_000
DEFAULT_RATE = 500.0  # tasks per second
_STEP = 0.25  # seconds between two steps; a stop is seen before the next one
_MAX_STEP = 500  # tasks
_LIVE_STATES = ("scheduled", "ready", "running", "waiting")


class BulkActions:
    """Runs bulk actions on the event loop of its caller. cancel, retry: return how many tasks have changed."""

    def __init__(
        self,
        tasks: TaskQueries,
        audit: AuditOperations,
        cancel: Callable[[Sequence[str], str], Awaitable[int]],
        retry: Callable[[Sequence[str]], Awaitable[int]],
    ) -> None:
        self._tasks = tasks
        self._audit = audit
        self._cancel = cancel
        self._retry = retry
        self._running: set[asyncio.Task[None]] = set()

    async def matching(self, verb: BulkVerb, where: TaskFilter) -> list[str]:
        """Return the tasks that the action would change: without a state, failed ones to retry, live ones to cancel."""
        if "state" in where:
            return await self._tasks.matching(**where)
        if verb == "retry":
            return await self._tasks.matching(**where | {"state": "failed"})
        found: dict[str, None] = {}
        for state in _LIVE_STATES:
            found.update(dict.fromkeys(await self._tasks.matching(**where | {"state": state})))
        return list(found)

    async def start(
        self, actor: Actor, verb: BulkVerb, uuids: Sequence[str], filter_text: str, rate: float, reason: str
    ) -> AuditRecord:
        """Begin, and return at once. If this process dies, the rest is unchanged, and the same action continues it."""
        entry = AuditEntry(
            user=actor.user,
            role=actor.role,
            via=actor.via,
            action=f"{verb} tasks",
            filter=filter_text,
            reason=reason,
            state="running",
            found=len(uuids),
            rate=rate,
        )
        entry_id = await self._audit.begin(entry)
        task = asyncio.create_task(self._run(entry_id, verb, list(uuids), rate, reason or f"by {actor.user}"))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        record = await self._audit.get(entry_id)
        assert record is not None
        return record

    async def stop(self, entry_id: str) -> AuditRecord | None:
        """Stop an action of any process after its current step. None: there is no such action."""

        def change(entry: AuditEntry) -> AuditEntry:
            return replace(entry, state="stopping") if entry.state == "running" else entry

        if await self._audit.update(entry_id, change) is None:
            return None
        return await self._audit.get(entry_id)

    async def _run(self, entry_id: str, verb: BulkVerb, uuids: list[str], rate: float, reason: str) -> None:
        try:
            await self._run_steps(entry_id, verb, uuids, rate, reason)
        except OnTheDotError as error:
            text = str(error)
            _log.warning("[bulk] action %s stopped: %s", entry_id, text)
            await self._audit.update(entry_id, lambda entry: replace(entry, state="failed", error=text))

    async def _run_steps(self, entry_id: str, verb: BulkVerb, uuids: list[str], rate: float, reason: str) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        done = 0
        while done < len(uuids):
            size = max(1, min(_MAX_STEP, int(rate * _STEP)))
            part = uuids[done : done + size]
            changed = await (self._cancel(part, reason) if verb == "cancel" else self._retry(part))
            done += len(part)
            entry = await self._note(entry_id, done, changed)
            if entry is None or entry.state == "stopping":
                break
            if done < len(uuids):
                await asyncio.sleep(max(0.0, began + done / rate - now()))
        end = "done" if done == len(uuids) else "stopped"
        await self._audit.update(entry_id, lambda entry: replace(entry, state=end))

    async def _note(self, entry_id: str, done: int, changed: int) -> AuditEntry | None:
        return await self._audit.update(
            entry_id, lambda entry: replace(entry, done=done, changed=entry.changed + changed)
        )
