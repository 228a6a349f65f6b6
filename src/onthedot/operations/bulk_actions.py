"""Cancel or retry many tasks, at a rate. The audit entry has the progress, so every process can show and stop it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from onthedot.errors import OnTheDotError
from onthedot.operations.audit import Actor, AuditEntry, AuditOperations, AuditRecord
from onthedot.operations.task_queries import TaskFilter, TaskQueries
from onthedot.operations.time_limit import TimeLimit

_log = logging.getLogger("onthedot.operations")
BulkVerb = Literal["cancel", "retry"]
_Step: TypeAlias = Callable[[Sequence[str]], Awaitable[int]]
MAX_TASKS = 100_000
DEFAULT_RATE = 500.0  # tasks per second
_STEP = 0.25  # seconds between two steps, unless the rate needs longer ones
_LOOK = 0.5  # seconds after which a stop is seen
_PATIENCE = 2.0  # seconds that the current steps have when the process ends
_RECORD_TIME = 1.0  # seconds to record that an action was stopped
_MAX_STEP = 500  # tasks
_LIVE_STATES = ("scheduled", "ready", "running", "waiting")


class MatchPosition(NamedTuple):
    """How far the tasks of a bulk action are found. state: its place among the states; cursor: in that state."""

    state: int = 0
    cursor: str | None = None


class MatchingPart(NamedTuple):
    """Tasks that a bulk action would change. rest: continues there; None: these are all."""

    uuids: list[str]
    rest: MatchPosition | None


FIRST = MatchPosition()


def _states(verb: BulkVerb, where: TaskFilter) -> tuple[str, ...]:
    if "state" in where:
        return (where["state"],)
    return ("failed",) if verb == "retry" else _LIVE_STATES


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
        self._running: dict[asyncio.Task[None], str] = {}  # with the id of the audit entry
        self._closing = asyncio.Event()

    async def matching(self, verb: BulkVerb, where: TaskFilter) -> list[str]:
        """Return the tasks that the action would change: without a state, failed ones to retry, live ones to cancel."""
        return (await self.matching_within(TimeLimit(), verb, where)).uuids

    async def matching_within(
        self, time_limit: TimeLimit, verb: BulkVerb, where: TaskFilter, begin: MatchPosition = FIRST
    ) -> MatchingPart:
        """Return as many of them as the time allows. begin: where the part before has ended."""
        states = _states(verb, where)
        found: dict[str, None] = {}
        place = begin.state
        cursor = begin.cursor
        while place < len(states):
            part = where | {"state": states[place], "cursor": cursor}
            page = await self._tasks.matching_within(time_limit, part)
            found.update(dict.fromkeys(page.uuids))
            cursor = page.cursor
            place += cursor is None
            if time_limit.is_over:
                break
        position = None if place >= len(states) else MatchPosition(place, cursor)
        return MatchingPart(list(found), position)

    async def start(
        self, actor: Actor, verb: BulkVerb, uuids: Sequence[str], filter_text: str, rate: float, reason: str
    ) -> AuditRecord:
        """Begin, and return at once. If this process dies, the rest is unchanged, and the same action continues it."""

        async def step(part: Sequence[str]) -> int:
            if verb == "cancel":
                return await self._cancel(part, reason or f"by {actor.user}")
            return await self._retry(part)

        return await self.start_steps(actor, f"{verb} tasks", uuids, filter_text, rate, reason, step)

    async def start_steps(
        self,
        actor: Actor,
        action: str,
        ids: Sequence[str],
        filter_text: str,
        rate: float,
        reason: str,
        step: _Step,
    ) -> AuditRecord:
        """As `start`, for anything that has ids. step: changes a part of it, and returns how many have changed."""
        entry = AuditEntry(
            user=actor.user,
            role=actor.role,
            via=actor.via,
            action=action,
            filter=filter_text,
            reason=reason,
            state="running",
            found=len(ids),
            rate=rate,
        )
        entry_id = await self._audit.begin(entry)
        task = asyncio.create_task(self._run(entry_id, list(ids), rate, step))
        self._running[task] = entry_id
        task.add_done_callback(self._running.pop)
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

    async def close(self, patience: float = _PATIENCE) -> None:
        """Stop the actions of this process, and record that. patience: seconds that the current steps have."""
        self._closing.set()
        running = dict(self._running)
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=patience)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        for task in late:
            await self._record_stop(running[task])

    async def _record_stop(self, entry_id: str) -> None:
        try:
            async with asyncio.timeout(_RECORD_TIME):
                await self._audit.complete(entry_id, state="stopped")
        except TimeoutError:
            _log.warning("[bulk] action %s is stopped, and its audit entry is not completed: no answer", entry_id)

    async def _run(self, entry_id: str, ids: list[str], rate: float, step: _Step) -> None:
        try:
            await self._run_steps(entry_id, ids, rate, step)
        except OnTheDotError as error:
            _log.warning("[bulk] action %s stopped: %s", entry_id, error)
            await self._audit.complete(entry_id, state="failed", error=str(error))
        except Exception as error:  # noqa: BLE001 - a defect; the log has it, and the entry does not stay "running"
            _log.exception("[bulk] action %s stopped", entry_id)
            text = f"{type(error).__name__}: an error of the server; its log has it"
            await self._audit.complete(entry_id, state="failed", error=text)

    async def _run_steps(self, entry_id: str, ids: list[str], rate: float, step: _Step) -> None:
        began = asyncio.get_running_loop().time()
        size = max(1, min(_MAX_STEP, int(rate * _STEP)))
        done = 0
        while done < len(ids) and await self._may_go_on(entry_id, began + done / rate):
            part = ids[done : done + size]
            changed = await step(part)
            done += len(part)
            await self._note(entry_id, done, changed)
        end = "done" if done == len(ids) else "stopped"
        await self._audit.update(entry_id, lambda entry: replace(entry, state=end))

    async def _may_go_on(self, entry_id: str, due: float) -> bool:
        """Wait until the next step is due, by the time of the event loop. False: the action is stopped."""
        now = asyncio.get_running_loop().time
        while not self._closing.is_set():
            record = await self._audit.get(entry_id)
            if record is None or record.entry.state == "stopping":
                return False
            pause = due - now()
            if pause <= 0:
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause, _LOOK)):
                    await self._closing.wait()
        return False

    async def _note(self, entry_id: str, done: int, changed: int) -> None:
        await self._audit.update(entry_id, lambda entry: replace(entry, done=done, changed=entry.changed + changed))
