"""The links of a flow's tasks: counters from the sets of predecessors, and waits by `on_error` and handlers."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

from onthedot.errors import ArgumentError
from onthedot.flows.graph import JOIN_ADVICE, Graph, Member
from onthedot.model.flow_names import end_counter, set_counter, start_signal
from onthedot.stores.contract import MAX_INCREMENTS, Links, Wait

START_TIMEOUT = 3_600_000  # ms that the first tasks wait for the start signal


class FlowLinks:
    """Makes the `Links` of each task of a flow; tasks with the same ones share one object.

    starts: the first tasks wait for the start signal
    parent: the flow of the task that spawns this one
    """

    def __init__(self, flow: str, graph: Graph, *, starts: bool, parent: str | None) -> None:
        self._flow = flow
        self._parent = parent
        self._starts = starts
        self._has_handlers = bool(graph.handlers)
        self._names: dict[frozenset[int], str] = {
            frozenset(
                member.number for member in graph.members if member.number is not None and not member.is_join
            ): flow
        }
        self._increments: defaultdict[int, list[str]] = defaultdict(list)
        self._made: dict[object, Links] = {}
        for member in graph.members:
            if member.number is not None and not member.is_join:
                self._increments[member.number].append(flow)
        for member in (*graph.members, graph.last):
            self._add_counter(member)
        self._check(graph)

    def of(self, member: Member, delay: int) -> Links:
        """delay: ms from the end of its wait to its due time."""
        wait = self._wait(member, delay)
        if member.number is not None:
            return self._shared(self._flow, tuple(self._increments[member.number]), wait)
        increments: tuple[str, ...] = ()
        if self._has_handlers:
            increments = (end_counter(self._flow),)
        return Links(self._parent or self._flow, increments, wait)

    def of_handler(self, requires: Literal["failure", "any"], delay: int) -> Links:
        """Handlers do not belong to the flow: they clean up, and are not cancelled with it."""
        return Links(waits=Wait(((end_counter(self._flow), 1),), delay=delay, requires=requires))

    def _wait(self, member: Member, delay: int) -> Wait | None:
        if member.predecessors:
            numbers = frozenset(member.predecessors)
            requires: Literal["any", "success"] = "any" if member.collects else "success"
            return Wait(((self._names[numbers], len(numbers)),), delay=delay, requires=requires)
        if self._starts:
            return Wait(((start_signal(self._flow), 1),), timeout=START_TIMEOUT, delay=delay)
        return None

    def _add_counter(self, member: Member) -> None:
        numbers = frozenset(member.predecessors)
        if not numbers or numbers in self._names:
            return
        name = set_counter(self._flow, len(self._names))
        self._names[numbers] = name
        for number in numbers:
            self._increments[number].append(name)

    def _check(self, graph: Graph) -> None:
        for member in graph.members:
            count = len(self._increments[member.number or 0])
            if count > MAX_INCREMENTS:
                raise ArgumentError(
                    f"{member.call!r} is in {count:,} different sets of predecessors, and {MAX_INCREMENTS} are "
                    f"allowed: {JOIN_ADVICE}"
                )

    def _shared(self, flow: str, increments: tuple[str, ...], wait: Wait | None) -> Links:
        key = (increments, wait)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = Links(flow, increments, wait)
        return made
