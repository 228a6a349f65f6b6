"""Children: tasks and flows that a task runs and waits for. They are added by the settle that suspends the task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from onthedot.client.lane_router import route_by
from onthedot.codec.body import Undecodable
from onthedot.engine.repeated_calls import RepeatedCalls
from onthedot.engine.suspension import Suspension
from onthedot.errors import ArgumentError, ResultExpired, StepChanged
from onthedot.flows.calls import Call
from onthedot.flows.enqueue import check_workers
from onthedot.flows.groups import Group
from onthedot.flows.journal import StepJournal, StepRequest
from onthedot.flows.tasks import check_app, make_child
from onthedot.model.context import RunState
from onthedot.model.failures import error_from_record, read_result
from onthedot.model.flow_names import child_flow, end_counter
from onthedot.model.saved_steps import RUN, SavedChild, read_value, saved_value
from onthedot.operations.flows import first_ended
from onthedot.operations.streams import with_items
from onthedot.stores.contract import Effects, NewTask, Record, Store, Suspended, Wait

_PAGE = 100  # attempts whose children are read at once


class Children:
    """The children of one run, one at a time. The uuid of a child derives from the task, the step and the attempt."""

    def __init__(self, run: RunState, journal: StepJournal, store: Store, calls: RepeatedCalls) -> None:
        self._run = run
        self._journal = journal
        self._store = store
        self._calls = calls

    async def run(self, call: Call[Any]) -> Any:
        """The result of a child that has succeeded. Otherwise the run ends here, or the child's error is raised."""
        if not isinstance(call, Call):  # pyright: ignore[reportUnnecessaryIsInstance] - a user may pass anything
            raise ArgumentError(f"ctx.run() takes a call such as f.s(…), or a flow of calls; not {call!r}")
        if isinstance(call, Group) and not call.members and not any(call.relations):
            return []
        check_app(call, self._run.source.owner, "ctx.run()")
        request = self._journal.request(f"{RUN}{call.source}")
        await self._journal.load()
        saved = self._journal.find(request)
        if saved is not None:
            flow = read_value(saved, SavedChild).flow
            (last,) = await self._get([flow])
            if last is None:
                raise ResultExpired(f"child {flow} of {request.key!r} is no longer kept")
            return await self._result(request, call, last)
        last = await self._ended(request, call)
        if last.state == "succeeded":
            result = await self._result(request, call, last)
            note = saved_value(request.position, SavedChild(last.uuid), request.after_errors)
            await self._journal.save(request.key, note)
            return result
        error = error_from_record(await self._cause(last))
        self._journal.add_error(request, error)
        raise error

    async def _ended(self, request: StepRequest, call: Call[Any]) -> Record:
        """The last task of the newest child, which has ended. Otherwise the run ends here.

        A child that did not succeed counts for the attempt that has started it: a later one starts the next.
        """
        this_attempt = self._flow(request, self._run.record.attempt)
        last = await self._newest(request)
        if last is None or (last.state in ("failed", "cancelled") and last.uuid != this_attempt):
            raise self._suspension(this_attempt, Effects(tuple(await self._new_tasks(this_attempt, call))))
        if last.history.ended is None:
            raise self._suspension(last.uuid)
        return last

    async def _newest(self, request: StepRequest) -> Record | None:
        """The last task of the child that was started last, by this attempt or an earlier one."""
        for first in range(self._run.record.attempt, 0, -_PAGE):
            attempts = range(first, max(0, first - _PAGE), -1)
            for record in await self._get([self._flow(request, attempt) for attempt in attempts]):
                if record is not None:
                    return record
        return None

    async def _new_tasks(self, flow: str, call: Call[Any]) -> Sequence[NewTask]:
        made = make_child(call, flow, self._run.record.uuid)
        await self._calls.run(partial(check_workers, self._store))
        if made.remote:
            return route_by(await self._calls.run(self._store.limits), made.tasks)
        return made.tasks

    def _suspension(self, flow: str, effects: Effects | None = None) -> Suspension:
        return Suspension(Suspended(self._run.lease, Wait(((end_counter(flow), 1),)), effects))

    def _flow(self, request: StepRequest, attempt: int) -> str:
        return child_flow(self._run.record.uuid, request.key, attempt)

    async def _get(self, uuids: Sequence[str]) -> Sequence[Record | None]:
        return await self._calls.run(partial(self._store.get, uuids))

    async def _result(self, request: StepRequest, call: Call[Any], last: Record) -> Any:
        last = await self._calls.run(partial(with_items, self._store, last))
        try:
            return read_result(last, call.decode_result)
        except Undecodable as error:
            text = f"the result of child {last.uuid} of {request.key!r} cannot be read: {error}"
            raise StepChanged(self._run.record.uuid, text) from error

    async def _cause(self, last: Record) -> Record:
        """The member that failed first, if the last task was cancelled because of it."""
        if last.state == "failed":
            return last
        return await self._calls.run(partial(first_ended, self._store, last.uuid, "failed")) or last
