"""The links of a flow's tasks: counters from the sets of predecessors, and waits by `on_error` and handlers."""

from __future__ import annotations

from typing import Literal

from onthedot.clock.durations import HOUR
from onthedot.errors import ArgumentError
from onthedot.flows.graph import JOIN_ADVICE, Graph, Member
from onthedot.model.flow_names import end_counter, set_counter, start_signal
from onthedot.stores.contract import MAX_INCREMENTS, Links, Wait

START_TIMEOUT = HOUR  # ms that the first tasks wait for the start signal


class FlowLinks:
    """Makes the `Links` of each task of a flow; tasks with the same ones share one object.

    starts: the first tasks wait for the start signal
    parent: the flow of the task that spawns this one, or the task that runs it as a child
    is_child: a task waits for its end
    """

    def __init__(self, flow: str, graph: Graph, *, starts: bool, parent: str | None, is_child: bool = False) -> None:
        self._flow = flow
        self._parent = parent
        self._starts = starts
        self._counts_end = is_child or bool(graph.handlers)
        counted = [member.number for member in graph.members if member.number is not None and not member.is_join]
        self._names: dict[frozenset[int], str] = {frozenset(counted): flow}  # of counters, by the ends that they count
        self._counters: dict[int, str] = {}  # their names by the id of a member's predecessors
        self._increments: list[tuple[str, ...]] = [()] * len(graph.members)  # by the number of a member
        own = (flow,)
        for number in counted:
            self._increments[number] = own
        for member in (*graph.members, graph.last):
            if member.predecessors and id(member.predecessors) not in self._counters:
                self._counters[id(member.predecessors)] = self._counter(frozenset(member.predecessors))
        self._made: dict[object, Links] = {}
        if len(self._names) > MAX_INCREMENTS:
            self._check(graph)

    def of(self, member: Member, delay: int) -> Links:
        """delay: ms from the end of its wait to its due time."""
        if member.number is None:
            increments: tuple[str, ...] = ()
            if self._counts_end:
                increments = (end_counter(self._flow),)
            return Links(self._parent or self._flow, increments, self._wait(member, delay))
        increments = self._increments[member.number]
        key = (increments, id(member.predecessors), member.collects, delay)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = Links(self._flow, increments, self._wait(member, delay))
        return made

    def of_handler(self, requires: Literal["failure", "any"], delay: int) -> Links:
        """Handlers do not belong to the flow: they clean up, and are not cancelled with it."""
        return Links(waits=Wait(((end_counter(self._flow), 1),), delay=delay, requires=requires))

    def _wait(self, member: Member, delay: int) -> Wait | None:
        if member.predecessors:
            requires: Literal["any", "success"] = "any" if member.collects else "success"
            counter = (self._counters[id(member.predecessors)], len(member.predecessors))
            return Wait((counter,), delay=delay, requires=requires)
        if self._starts:
            return Wait(((start_signal(self._flow), 1),), timeout=START_TIMEOUT, delay=delay)
        return None

    def _counter(self, numbers: frozenset[int]) -> str:
        """The name of the counter of these members' ends."""
        name = self._names.get(numbers)
        if name is None:
            name = self._names[numbers] = set_counter(self._flow, len(self._names))
            for number in numbers:
                self._increments[number] += (name,)
        return name

    def _check(self, graph: Graph) -> None:
        for member, increments in zip(graph.members, self._increments, strict=True):
            if len(increments) > MAX_INCREMENTS:
                raise ArgumentError(
                    f"{member.call!r} is in {len(increments):,} different sets of predecessors, and {MAX_INCREMENTS} "
                    f"are allowed: {JOIN_ADVICE}"
                )
