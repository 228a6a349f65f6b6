"""Values of a task, a flow or a batch that change while it lives. They are read now and then and never replayed."""
# Handles of any result are the subject here.
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from onthedot.api.batches import Batch
from onthedot.api.flow_handles import AsyncFlowHandle
from onthedot.api.handles import AsyncTaskHandle
from onthedot.model.task import TaskInfo


class LiveValue(NamedTuple):
    """kind: ``state`` or ``progress``"""

    kind: str
    data: object


class LiveValues(Protocol):
    async def read(self) -> Sequence[LiveValue]:
        """Those that have changed since the last call. Raises TaskNotFound."""
        ...

    def on_entry(self) -> None:
        """The stream has yielded an entry."""
        ...


class TaskValues:
    """The state of a task, and its ``ctx.progress``; of a flow, how many of its tasks have ended."""

    def __init__(self, handle: AsyncTaskHandle[Any]) -> None:
        self._handle = handle
        self._last: dict[str, object] = {}

    async def read(self) -> Sequence[LiveValue]:
        info = await self._handle.info()
        values = [LiveValue("progress", await self._progress(info))]
        if not info.state.ended:  # an end has its own entry
            values.insert(0, LiveValue("state", info.state))
        changed = [value for value in values if self._last.get(value.kind) != value.data]
        self._last.update(changed)
        return changed

    async def _progress(self, info: TaskInfo) -> object:
        if isinstance(self._handle, AsyncFlowHandle):
            return await self._handle.progress()
        return progress_of(info)

    def on_entry(self) -> None: ...


class BatchValues:
    """The progress of a batch. It changes with its parts, and is read after them only: a read reads all parts."""

    def __init__(self, batch: Batch[Any]) -> None:
        self._batch = batch
        self._may_have_changed = True

    async def read(self) -> Sequence[LiveValue]:
        if not self._may_have_changed:
            return ()
        self._may_have_changed = False
        try:
            return (LiveValue("progress", await self._batch.progress()),)
        except BaseException:
            self._may_have_changed = True
            raise

    def on_entry(self) -> None:
        self._may_have_changed = True


class NoValues:
    """Of any other object."""

    async def read(self) -> Sequence[LiveValue]:
        return ()

    def on_entry(self) -> None: ...


def live_values(handle: object) -> LiveValues:
    if isinstance(handle, Batch):
        return BatchValues(handle)
    if isinstance(handle, AsyncTaskHandle):
        return TaskValues(handle)
    return NoValues()


def progress_of(info: TaskInfo) -> dict[str, float] | None:
    """
    >>> from onthedot import App
    >>> app = App("shop", store="memory://")
    >>> @app.task
    ... def resize(path: str) -> None: ...
    >>> progress_of(app.sync.get(resize.delay("a.png").uuid)) is None
    True
    """
    if info.progress is None:
        return None
    done, total = info.progress
    return {"done": done, "total": total}
