"""``app.batches``: whether tasks accept new batches."""

from __future__ import annotations

from onthedot.client.portal import Portal

__all__ = ["Batches", "SyncBatches"]


class Batches:
    """``app.batches``: whether tasks accept new batches, for all processes at once.

    >>> import asyncio
    >>> from onthedot import App
    >>> app = App("shop", store="memory://")
    >>> async def main() -> None:
    ...     await app.batches.freeze("names")
    ...     print(await app.batches.mode("names"), await app.batches.thaw("names"))
    >>> asyncio.run(main())
    frozen True
    """

    def __init__(self, portal: Portal) -> None:
        self._portal = portal

    async def mode(self, task: str) -> str:
        """Returns ``frozen``, ``degraded``, or an empty string.

        Args:
            task: The name of the task.
        """
        return await self._portal.run(lambda client: client.operations.batches.mode(task))

    async def freeze(self, task: str) -> None:
        """Accepts no new batches; running ones finish. Within one second ``app.batch`` raises `SourceFrozen`.

        A task has one mode at a time: this ends a degraded mode.

        Args:
            task: The name of the task.
        """
        await self._portal.run(lambda client: client.operations.batches.freeze(task))

    async def thaw(self, task: str) -> bool:
        """Accepts batches again. Returns whether the task was frozen; a degraded one stays degraded.

        Args:
            task: The name of the task.
        """
        return await self._portal.run(lambda client: client.operations.batches.thaw(task))

    async def drain(self, task: str, timeout: float | None = None) -> None:
        """Freezes a task, then waits until all its batches have ended.

        Args:
            task: The name of the task.
            timeout: Seconds to wait, then TimeoutError; the task stays frozen. None: without a limit.
        """
        await self._portal.run(lambda client: client.operations.batches.drain(task, timeout), waits=True)

    async def degrade(self, task: str) -> None:
        """Makes new batches in one part, by the fallback of the task; without one, by the task itself.

        A task has one mode at a time: this ends a freeze.

        Args:
            task: The name of the task.
        """
        await self._portal.run(lambda client: client.operations.batches.degrade(task))

    async def restore(self, task: str) -> bool:
        """Splits new batches again. Returns whether the task was degraded; a frozen one stays frozen.

        Args:
            task: The name of the task.
        """
        return await self._portal.run(lambda client: client.operations.batches.restore(task))


class SyncBatches:
    """``app.sync.batches``: `Batches` for sync code."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal

    def mode(self, task: str) -> str:
        return self._portal.run_sync(lambda client: client.operations.batches.mode(task))

    def freeze(self, task: str) -> None:
        self._portal.run_sync(lambda client: client.operations.batches.freeze(task))

    def thaw(self, task: str) -> bool:
        return self._portal.run_sync(lambda client: client.operations.batches.thaw(task))

    def drain(self, task: str, timeout: float | None = None) -> None:
        self._portal.run_sync(lambda client: client.operations.batches.drain(task, timeout), waits=True)

    def degrade(self, task: str) -> None:
        self._portal.run_sync(lambda client: client.operations.batches.degrade(task))

    def restore(self, task: str) -> bool:
        return self._portal.run_sync(lambda client: client.operations.batches.restore(task))
