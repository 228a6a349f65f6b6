"""Handles of streams: tasks whose function is an async generator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Generic, TypeVar

from onthedot.api.handles import AsyncTaskHandle, TaskHandle
from onthedot.api.stream_entries import AsyncEntries, SyncEntries, item, item_with_cursor

T = TypeVar("T")


class AsyncStreamHandle(AsyncTaskHandle[list[T]], Generic[T]):
    """A stream, for async code: ``async for item in handle``; ``await handle`` is the list of all items."""

    __slots__ = ()

    def __aiter__(self) -> AsyncIterator[T]:
        """Yields the items as they come, from the first one on. As `items`."""
        return AsyncEntries(self._stream_source(), "", item, has_end=False)

    def items(self, after: str = "") -> AsyncIterator[tuple[str, T]]:
        """Yields ``(cursor, item)`` as the items come; ends with the task and raises its error.

        `StreamRestarted`: a new run of the task has begun again; what was read so far does not belong to it.

        Args:
            after: The cursor of the last item that was read; by default it begins with the first one.
        """
        return AsyncEntries(self._stream_source(), after, item_with_cursor, has_end=False)


class StreamHandle(TaskHandle[list[T]], Generic[T]):
    """A stream, for sync code: ``for item in handle``; ``handle.result()`` is the list of all items.

    >>> from collections.abc import AsyncIterator
    >>> from onthedot import App
    >>> app = App("shop", store="memory://")
    >>> @app.task
    ... async def words(text: str) -> AsyncIterator[str]:
    ...     for word in text.split():
    ...         yield word
    >>> with app.background():
    ...     handle = words.delay("on the dot")
    ...     list(handle), handle.result(timeout=5)
    (['on', 'the', 'dot'], ['on', 'the', 'dot'])
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[T]:
        """Yields the items as they come, from the first one on. As `items`."""
        self._check_may_wait()
        return SyncEntries(self._stream_source(), "", item, has_end=False)

    def items(self, after: str = "") -> Iterator[tuple[str, T]]:
        """Yields ``(cursor, item)`` as the items come; ends with the task and raises its error.

        `StreamRestarted`: a new run of the task has begun again; what was read so far does not belong to it.

        Args:
            after: The cursor of the last item that was read; by default it begins with the first one.
        """
        self._check_may_wait()
        return SyncEntries(self._stream_source(), after, item_with_cursor, has_end=False)
