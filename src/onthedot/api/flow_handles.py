"""Handles of flows, and the part of the api that adds flows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from onthedot.api.handles import AsyncTaskHandle, TaskHandle
from onthedot.client.client import StoreClient
from onthedot.client.portal import Portal
from onthedot.definitions.new_task import check_conflict
from onthedot.flows.calls import Call
from onthedot.flows.enqueue import add_flow, is_stored
from onthedot.flows.tasks import Flow, check_app, make_flow
from onthedot.model.task import check_uuid
from onthedot.operations.flows import FlowProgress
from onthedot.operations.task_queries import TaskPage
from onthedot.stores.capabilities import AsyncTransactions
from onthedot.stores.contract import Added, NewTask, Record

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class AsyncFlowHandle(AsyncTaskHandle[R_co]):
    """A flow, for async code: ``value = await handle``. It is the handle of its last task. As `FlowHandle`, awaited."""

    __slots__ = ()

    async def progress(self) -> FlowProgress:
        """Returns how many of its tasks have ended."""
        return await self._portal.run(lambda client: client.operations.flows.progress(self.uuid))

    async def tasks(self, state: str | None = None, cursor: str | None = None) -> TaskPage:
        """Returns a page of its tasks, newest first.

        Args:
            state: Only those in this state.
            cursor: The ``cursor`` of the page before.
        """
        return await self._portal.run(lambda client: client.operations.flows.tasks(self.uuid, state, cursor))

    async def cancel(self, reason: str = "cancelled") -> int:  # type: ignore[override]
        """Cancels all its tasks that live, and waits up to 5 s for their ends. Returns how many lived.

        Args:
            reason: Kept with the tasks.
        """
        return await self._portal.run(lambda client: client.operations.flows.cancel(self.uuid, reason), waits=True)

    async def retry(self) -> int:  # type: ignore[override]
        """Runs its failed tasks again, then those that were cancelled. Returns how many are alive again."""
        return await self._portal.run(lambda client: client.operations.flows.retry(self.uuid))

    async def _end(self, timeout: float | None) -> Record:
        return await self._portal.run(lambda client: _end_of_flow(client, self.uuid, timeout), waits=True)


class FlowHandle(TaskHandle[R_co]):
    """A flow, for sync code: ``value = handle.result(timeout=5)``. It is the handle of its last task.

    >>> from onthedot import App, group
    >>> app = App("shop", store="memory://")
    >>> @app.task
    ... def double(number: int) -> int:
    ...     return number * 2
    >>> with app.background():
    ...     handle = group(double.s(number) for number in range(3)).delay()
    ...     handle.result(timeout=5)
    ...     handle.progress()
    [0, 2, 4]
    FlowProgress(done=3, failed=0, total=3)
    """

    __slots__ = ()

    def progress(self) -> FlowProgress:
        """Returns how many of its tasks have ended."""
        return self._portal.run_sync(lambda client: client.operations.flows.progress(self.uuid))

    def tasks(self, state: str | None = None, cursor: str | None = None) -> TaskPage:
        """Returns a page of its tasks, newest first.

        Args:
            state: Only those in this state.
            cursor: The ``cursor`` of the page before.
        """
        return self._portal.run_sync(lambda client: client.operations.flows.tasks(self.uuid, state, cursor))

    def cancel(self, reason: str = "cancelled") -> int:  # type: ignore[override]
        """Cancels all its tasks that live, and waits up to 5 s for their ends. Returns how many lived.

        Args:
            reason: Kept with the tasks.
        """
        return self._portal.run_sync(lambda client: client.operations.flows.cancel(self.uuid, reason), waits=True)

    def retry(self) -> int:  # type: ignore[override]
        """Runs its failed tasks again, then those that were cancelled. Returns how many are alive again."""
        return self._portal.run_sync(lambda client: client.operations.flows.retry(self.uuid))

    async def _wait(self, client: StoreClient, timeout: float | None) -> Record:
        return await _end_of_flow(client, self.uuid, timeout)


async def _end_of_flow(client: StoreClient, uuid: str, timeout: float | None) -> Record:
    """The last task; or the member that failed first, if the last one was cancelled because of it."""
    last = await client.wait_for_end(uuid, timeout)
    if last.state != "cancelled":
        return last
    return await client.operations.flows.first_failed(uuid) or last


class AppFlows:
    """Adds calls of one app. Implements `FlowAdder`."""

    __slots__ = ("portal",)

    def __init__(self, portal: Portal) -> None:
        self.portal: Portal = portal

    def delay(self, call: Call[R], uuid: str | None, connection: Any) -> FlowHandle[R]:
        flow = self._make(call, uuid, connection)
        if connection is None:
            adds = _of_add(flow)
            added = self.portal.run_sync(lambda client: add_flow(client, flow, named=uuid is not None), adds=adds)
        else:
            added = self._delay_in(flow, connection, named=uuid is not None)
        return FlowHandle(self.portal, *self._answer(call, flow, added))

    async def enqueue(self, call: Call[R], uuid: str | None, connection: Any) -> AsyncFlowHandle[R]:
        flow = self._make(call, uuid, connection)
        if connection is None:
            adds = _of_add(flow)
            added = await self.portal.run(lambda client: add_flow(client, flow, named=uuid is not None), adds=adds)
        else:
            added = await self._enqueue_in(flow, connection, named=uuid is not None)
        return AsyncFlowHandle(self.portal, *self._answer(call, flow, added))

    def spawn(self, call: Call[R], flow: str | None, owner: object) -> tuple[list[NewTask], FlowHandle[R]]:
        check_app(call, owner, "ctx.spawn()")
        made = make_flow(call, parent=flow, at_once="ctx.spawn")
        return made.tasks, FlowHandle(self.portal, made.uuid, call.decode_result)

    def _make(self, call: Call[Any], uuid: str | None, connection: Any) -> Flow:
        if uuid is not None:
            check_uuid(uuid)
        return make_flow(call, uuid, at_once="" if connection is None else "connection=…")

    def _answer(self, call: Call[Any], flow: Flow, added: Added) -> tuple[str, Callable[[bytes], Any], bool]:
        fresh = added.fresh
        if added.uuid != flow.uuid:  # a plain task with a unique key
            fresh = check_conflict(call.source, call.definition.options, flow.last, added)
        return added.uuid, call.decode_result, fresh

    def _delay_in(self, flow: Flow, connection: Any, *, named: bool) -> Added:
        self.portal.in_transaction(lambda _: None)  # opens a client, unless that must wait for this transaction
        is_open = self.portal.ensure_open() is None
        if is_open and self.portal.run_sync(lambda client: is_stored(client.store, flow, named=named)):
            return Added(flow.uuid, fresh=False)
        tasks = self.portal.prepare_in_transaction(connection, flow.tasks, remote=bool(flow.remote))
        answers = self.portal.in_transaction(lambda store: store.add_in(connection, tasks))
        return answers[len(flow.members)]

    async def _enqueue_in(self, flow: Flow, connection: Any, *, named: bool) -> Added:
        async def add(store: AsyncTransactions) -> Added:
            if await self.portal.run(lambda client: is_stored(client.store, flow, named=named)):
                return Added(flow.uuid, fresh=False)
            remote = bool(flow.remote)
            tasks = await self.portal.run(lambda client: client.prepare(flow.tasks, remote=remote))
            answers = await store.add_awaited(connection, tasks)
            return answers[len(flow.members)]

        return await self.portal.in_transaction_awaited(add)


def _of_add(flow: Flow) -> Sequence[NewTask]:
    """The tasks that an error names: the last one identifies the flow."""
    return (flow.last,)
