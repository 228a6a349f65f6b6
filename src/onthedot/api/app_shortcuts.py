"""The most frequent operations, on the app itself. ``app.operations`` has more."""

from __future__ import annotations

from typing import Unpack

from onthedot.api.operations import AppOperations
from onthedot.model.task import TaskInfo
from onthedot.operations.explain import Explanation
from onthedot.operations.task_queries import TaskFilter, TaskPage


class AppShortcuts:
    _verbs: AppOperations  # of a program: without entries in the audit log

    async def get(self, uuid: str) -> TaskInfo:
        """Returns a task, with its result if it has one. uuid: the whole of it. Raises TaskNotFound."""
        return await self._verbs.get(uuid)

    async def explain(self, uuid: str) -> Explanation:
        """Returns why a task is not running, and when it may, by the rules of the claim. uuid: its id."""
        return await self._verbs.explain(uuid)

    async def find(self, **where: Unpack[TaskFilter]) -> TaskPage:
        """Returns a page of tasks, newest first, or in the order of the state: ``await app.find(state="failed")``.

        Args:
            where: See `TaskFilter`.
        """
        return await self._verbs.find(**where)

    async def retry(self, *uuids: str) -> list[str]:
        """Runs failed or cancelled tasks again. uuids: their ids. Returns the uuids of those that are alive now."""
        return await self._verbs.retry(*uuids)

    async def cancel(self, *uuids: str, reason: str = "cancelled") -> int:
        """Cancels tasks: pending ones end at once, running ones are asked to. Returns how many were alive.

        Args:
            uuids: The ids of the tasks.
            reason: Kept with the tasks.
        """
        return await self._verbs.cancel(*uuids, reason=reason)

    async def pause(self, source: str, key: str | None = None, reason: str = "") -> None:
        """Starts no more tasks of a source until `resume`; running tasks go on.

        Args:
            source: The name of the source.
            key: Only the tasks of this key of its lane.
            reason: Shown to others who look.
        """
        await self._verbs.pause(source, key, reason)

    async def resume(self, source: str, key: str | None = None) -> None:
        """Ends a pause. source, key: as in `pause`."""
        await self._verbs.resume(source, key)

    async def purge(self, limit: int = 10_000) -> int:
        """Deletes tasks past their retention, as workers do. limit: how many at most. Returns how many."""
        return await self._verbs.purge(limit)
