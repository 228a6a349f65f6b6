"""The function that ``@app.task`` returns for an async generator: its tasks are streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast

from onthedot.api.functions import Enqueuer, checked_options, wrap
from onthedot.api.handles import AsyncTaskHandle, TaskHandle
from onthedot.api.stream_handles import AsyncStreamHandle, StreamHandle
from onthedot.client.portal import Portal
from onthedot.definitions.functions import FunctionDefinition
from onthedot.flows.calls import Call
from onthedot.model.options import AddOptions

P = ParamSpec("P")
T = TypeVar("T")


class StreamEnqueuer(Enqueuer[P, list[T]], Generic[P, T]):
    """The methods that add streams: the same on a function and on ``function.options(…)``."""

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> StreamHandle[T]:
        """Adds a call; it is stored when this returns. For sync code; async code awaits ``enqueue``."""
        return self._stream(super().delay(*args, **kwargs))

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncStreamHandle[T]:
        """Adds a call; it is stored when this returns."""
        return self._async_stream(await super().enqueue(*args, **kwargs))

    def delay_many(  # type: ignore[override]
        self, calls: Iterable[Mapping[str, Any] | tuple[Any, ...] | Call[list[T]]]
    ) -> list[StreamHandle[T]]:
        """Adds many calls; all are checked before the first is stored. For sync code.

        Args:
            calls: Each a dict of arguments, a tuple of them, or a call.
        """
        return [self._stream(handle) for handle in super().delay_many(calls)]

    async def enqueue_many(  # type: ignore[override]
        self, calls: Iterable[Mapping[str, Any] | tuple[Any, ...] | Call[list[T]]]
    ) -> list[AsyncStreamHandle[T]]:
        """Adds many calls; all are checked before the first is stored. calls: as in `delay_many`."""
        return [self._async_stream(handle) for handle in await super().enqueue_many(calls)]

    def _stream(self, handle: TaskHandle[list[T]]) -> StreamHandle[T]:
        return StreamHandle(self._portal, handle.uuid, self._definition.decode_result, handle.added)

    def _async_stream(self, handle: AsyncTaskHandle[list[T]]) -> AsyncStreamHandle[T]:
        return AsyncStreamHandle(self._portal, handle.uuid, self._definition.decode_result, handle.added)


class StreamFunction(StreamEnqueuer[P, T], Generic[P, T]):
    """An async generator with ``@app.task``: its items can be read while it runs, and its result is their list.

    Calling it returns the generator, which runs in place; ``delay`` and ``enqueue`` add a task.

    >>> from onthedot import App
    >>> app = App("shop", store="memory://")
    >>> @app.task
    ... async def count(to: int) -> AsyncIterator[int]:
    ...     for number in range(to):
    ...         yield number
    >>> with app.background():
    ...     for number in count.delay(2):
    ...         print(number)
    0
    1
    """

    def __init__(self, portal: Portal, definition: FunctionDefinition) -> None:
        self._function = definition.function
        super().__init__(portal, definition, {})
        wrap(self, definition)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return cast("AsyncIterator[T]", self._function(*args, **kwargs))

    @property
    def name(self) -> str:
        """The source of its tasks."""
        return self._definition.name

    def options(self, **options: Unpack[AddOptions]) -> StreamEnqueuer[P, T]:
        """Returns an object with the same methods, whose calls have these options.

        Args:
            options: See `AddOptions`.
        """
        return StreamEnqueuer(self._portal, self._definition, checked_options(self.name, options))

    def handle(self, uuid: str) -> StreamHandle[T]:
        """Returns the handle of a stream that was added elsewhere, for sync code.

        Args:
            uuid: The id of the task.
        """
        return StreamHandle(self._portal, uuid, self._definition.decode_result, added=False)

    def ahandle(self, uuid: str) -> AsyncStreamHandle[T]:
        """Returns the handle of a stream that was added elsewhere, for async code.

        Args:
            uuid: The id of the task.
        """
        return AsyncStreamHandle(self._portal, uuid, self._definition.decode_result, added=False)

    def __repr__(self) -> str:
        return f"<stream {self.name}>"
