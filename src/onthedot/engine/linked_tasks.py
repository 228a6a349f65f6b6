"""The seam for tasks with links: the engine runs them like others, and the flow layer knows what the links mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from onthedot.stores.contract import Effects, Outcome, Record


class LinkedTasks(Protocol):
    """Called for tasks with links, and for chores that were cancelled after a start: plain tasks pay nothing."""

    def has_inputs(self, record: Record) -> bool:
        """Whether it must be prepared: its body refers to other tasks."""
        ...

    async def prepare(self, record: Record) -> Record:
        """The record with the body that the run decodes. Raises what the run shall end with, or StoreError."""
        ...

    def adjust(self, record: Record, outcome: Outcome, *, cancelled: bool = False) -> Outcome:
        """The outcome as it is settled; a task that has completed without effects is settled as it is.

        cancelled: the run was asked to end
        """
        ...

    async def results(self, record: Record, page: int) -> Sequence[object]:
        """A page of the results of tasks that it follows, from 0; an empty one is after the last."""
        ...

    async def effects_of_cancel(self, chores: Sequence[Record]) -> Mapping[str, Effects]:
        """The effects of the ends of cancelled tasks that have started, by uuid; also of tasks without links."""
        ...

    async def reasons(self, chores: Sequence[Record]) -> Mapping[str, str]:
        """Why chores end, by uuid, where there is more to say than the record does."""
        ...


class NotPrepared(BaseException):
    """The store did not return what a run needs: it starts again later, uncounted."""
