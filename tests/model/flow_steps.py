"""Steps of the state machine about flows: tasks that belong together, and subscriptions to their ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from msgspec.structs import replace

from onthedot.stores.contract import MAX_KEPT_SIGNALS, Links, NewTask, Wait
from tests.model.example_settings import often
from tests.model.steps import Steps
from tests.model.stored_subscriptions import stored_subscriptions
from tests.model.strategies import COUNTERS, SIGNALS, new_tasks


class FlowSteps(Steps):
    def __init__(self) -> None:
        super().__init__()
        self.flow_looks = 0

    @often(
        2,
        members=st.lists(new_tasks(), min_size=1, max_size=3),
        last=new_tasks(),
        requires=st.sampled_from(["success", "any", "failure"]),
        is_split=st.booleans(),
    )
    def flow(self, members: Sequence[NewTask], last: NewTask, requires: Any, is_split: bool) -> None:
        """The last task waits for the ends of all members. It may be added later than they are."""
        uuid = self.new_uuid()
        self.flows.append(uuid)
        links = Links(uuid, (uuid,))
        linked = [replace(each, uuid="", unique=None, links=None) for each in members]
        linked = [replace(each, links=links) for each in self.resolved(linked)]
        wait = Wait(((uuid, len(linked)),), requires=requires)
        callback = replace(last, uuid=uuid, at=None, unique=None, links=Links(uuid, waits=wait))
        if is_split:
            self.same("add", linked)
            self.same("add", [callback])
        else:
            self.same("add", [*linked, callback])

    @rule(data=st.data(), which=st.sampled_from([0, 1, None]))
    def subscribe(self, data: st.DataObject, which: int | None) -> None:
        session = f"reader{len(self.leases)}" if which is None else self.someone(which)
        uuids = self.some(data, "scheduled", "ready", "parked", "running", "waiting", "failed")
        self.same("subscribe", session, uuids)

    @invariant()
    def no_counter_differs(self) -> None:
        self.same("counters", [*COUNTERS, *SIGNALS, *self.flows[-3:]])
        for name in SIGNALS:
            theirs, ours = self.call("signals", name, 0, 10)
            assert (theirs.value, list(theirs.signals)) == (ours.value, ours.signals)
        theirs, ours = self.call("signal_names", MAX_KEPT_SIGNALS)
        assert set(theirs) == set(ours)

    @invariant()
    def no_flow_differs(self) -> None:
        """Pages by flow and by counter, and subscriptions; one of them per step, since each costs a call."""
        self.flow_looks += 1
        name = self.flows[-1] if self.flows else "none"
        questions = [{"flow": name}, {"flow": "*"}, {"waits_for": name}, {"waits_for": COUNTERS[0]}, None]
        where = questions[self.flow_looks % len(questions)]
        if where is not None:
            self.same_pages(where)
        else:
            assert stored_subscriptions(self.store) == self.naive.subscriptions
