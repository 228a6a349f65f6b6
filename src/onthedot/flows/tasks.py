"""An expression as new tasks: bodies with references to results, links and uuids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, cast

from msgspec import Raw
from msgspec.structs import replace

from onthedot.codec.annotations import write
from onthedot.codec.body import NO_HEADERS, Headers, Inputs, StoredBody
from onthedot.codec.results import store_many
from onthedot.definitions.new_task import AGING, due_time
from onthedot.errors import ArgumentError
from onthedot.flows.calls import Call, FirstFailure, Result, check_results, with_clear_error
from onthedot.flows.graph import JOIN_ADVICE, Graph, Member, build_graph, has_placeholders, is_placeholder, results_in
from onthedot.flows.groups import Group
from onthedot.flows.links import FlowLinks
from onthedot.model.flow_names import JOIN, MemberUuids
from onthedot.stores.contract import BATCH, MAX_ADD, Links, NewTask, Policy

MAX_AT_ONCE = BATCH  # tasks that one add stores in any case, all or nothing, also beside the end of a task
MAX_WHOLE_BYTES = 8 << 20  # of the bodies of up to MAX_ADD tasks that one add stores
ITEMS = "items"  # the argument of a join


@dataclass
class Flow:
    """The tasks of a flow: each member comes after those that it follows. Handlers wait for the last task.

    remote: sources whose code is elsewhere
    starts: several adds store it, and its first tasks wait for the start signal
    """

    uuid: str
    members: list[NewTask]
    last: NewTask
    handlers: list[NewTask]
    remote: frozenset[str]
    starts: bool = False

    @property
    def tasks(self) -> list[NewTask]:
        return [*self.members, self.last, *self.handlers]

    def __len__(self) -> int:
        return len(self.members) + 1 + len(self.handlers)

    @property
    def is_single(self) -> bool:
        """It is one plain task, linked to nothing."""
        return len(self) == 1

    @property
    def is_whole(self) -> bool:
        """One add of up to MAX_ADD tasks can store it without delaying others for long."""
        return len(self) <= MAX_AT_ONCE or sum([len(task.body) for task in self.tasks]) <= MAX_WHOLE_BYTES


def make_flow(call: Call[Any], uuid: str | None = None, parent: str | None = None, *, at_once: str = "") -> Flow:
    """The tasks of an expression; ArgumentError for one that cannot run. Nothing is stored.

    parent: the flow of the task that spawns it
    at_once: what adds it in one step, such as "ctx.spawn"; "": several adds may store it
    """
    owner = _first_definition(call).owner
    graph = build_graph(call, owner.max_flow)
    count = len(graph)
    if at_once:
        _check_count(count, at_once)
    if count == 1:
        return _single(graph, uuid, parent)
    name = uuid or owner.new_uuid()
    if count <= MAX_ADD:
        flow = _Maker(name, graph, parent, starts=False).make()
        if flow.is_whole:
            return flow
    return _Maker(name, graph, parent, starts=True).make()


def make_child(call: Call[Any], uuid: str, parent: str) -> Flow:
    """The tasks of an expression that a task runs as its child. uuid: of the flow; parent: of that task."""
    graph = build_graph(call, _first_definition(call).owner.max_flow)
    _check_count(len(graph), "ctx.run")
    return _Maker(uuid, graph, parent, starts=False, is_child=True).make()


def check_app(call: Call[Any], owner: object, verb: str) -> None:
    """Raises ArgumentError for a call of another app. owner: of the running task."""
    if _first_definition(call).owner is not owner:
        raise ArgumentError(
            f"{verb}: {call!r} is a call of another app, whose store may be another; add it with .enqueue()"
        )


def _check_count(count: int, verb: str) -> None:
    if count > MAX_AT_ONCE:
        raise ArgumentError(
            f"{verb} adds at most {MAX_AT_ONCE:,} tasks in one step, and this flow has {count:,}: {JOIN_ADVICE} "
            "that spawns the rest, or add it with .enqueue()"
        )


def _single(graph: Graph, uuid: str | None, parent: str | None) -> Flow:
    call = graph.last.call
    if isinstance(call, Group) or has_placeholders(call):
        return _Maker(uuid or _first_definition(call).owner.new_uuid(), graph, parent, starts=False).make()
    new = with_clear_error(call, call.definition.new_task, call.args, call.kwargs, call.call_options)
    if uuid is not None:
        new = replace(new, uuid=uuid)
    if parent is not None:
        new = replace(new, links=Links(parent))
    return Flow(new.uuid, [], new, [], _remote([call]))


def _first_definition(call: Call[Any]) -> Any:
    """Of any task of the expression: all are of one app."""
    stack = [call]
    while stack:
        found = stack.pop()
        if not isinstance(found, Group):
            return found.definition
        stack += [*found.relations.after, *found.relations.first_after, *found.members[:1]]
    raise ArgumentError("an empty group belongs to no app: write group([]) | f, or leave it out")


def _remote(calls: Iterable[Call[Any]]) -> frozenset[str]:
    return frozenset(call.source for call in calls if not isinstance(call, Group) and call.definition.is_remote)


class _Maker:
    def __init__(self, flow: str, graph: Graph, parent: str | None, *, starts: bool, is_child: bool = False) -> None:
        self._flow = flow
        self._graph = graph
        self._starts = starts
        self._is_child = is_child
        self._uuids = MemberUuids(flow)
        self._links = FlowLinks(flow, graph, starts=starts, parent=parent, is_child=is_child)
        self._shared_headers: dict[object, Headers] = {}
        self._join_policy: Policy | None = None

    def make(self) -> Flow:
        graph = self._graph
        members = [self._member(member) for member in graph.members]
        last = self._member(graph.last)
        handlers: list[NewTask] = []
        for number, handler in enumerate(graph.handlers, len(members)):
            new = self._handler(handler.call)
            links = self._links.of_handler(handler.requires, ceil(new.after))
            handlers.append(replace(new, uuid=self._uuids.of(number), after=0, links=links))
        calls = [member.call for member in (*graph.members, graph.last)]
        remote = _remote([*calls, *(handler.call for handler in graph.handlers)])
        return Flow(self._flow, members, last, handlers, remote, self._starts)

    def _member(self, member: Member) -> NewTask:
        uuid = self._flow if member.number is None else self._uuids.of(member.number)
        if isinstance(member.call, Group):
            return self._join(member, member.call, uuid)
        delay = self._delay(member) if member.call.call_options else 0
        new = self._call(member, member.call, uuid, self._links.of(member, delay))
        return replace(new, after=0) if delay else new

    def _delay(self, member: Member) -> int:
        """Milliseconds from the end of its wait to its due time."""
        options = member.call.call_options
        if "after" in options and (member.predecessors or self._starts):
            _, after = due_time(options)
            return ceil(after)
        return 0

    def _handler(self, call: Call[Any]) -> NewTask:
        if has_placeholders(call):
            return self._task_with_results(call, Inputs(flow=self._flow))
        return with_clear_error(call, call.definition.new_task, call.args, call.kwargs, call.call_options)

    def _call(self, member: Member, call: Call[Any], uuid: str, links: Links) -> NewTask:
        options = call.call_options
        definition = call.definition
        if definition.options.unique or (options and ("unique" in options or "uuid" in options)):
            option = "uuid" if "uuid" in options else "unique"
            advice = "give the flow a uuid: .enqueue(uuid=…)"
            if self._is_child:
                advice = "ctx.run adds a child once per attempt, under a uuid of its own"
            raise ArgumentError(f"{call.source}: {option}= on a task inside a flow; {advice}")
        if (call.args or call.kwargs) and has_placeholders(call):
            return self._task_with_results(call, self._inputs(member), uuid, links)
        headers = NO_HEADERS
        if member.predecessors or member.stops or member.number is None:
            headers = self._headers(member)
        try:
            return definition.new_task(call.args, call.kwargs, options, headers, uuid, links)
        except ArgumentError:
            check_results(call)
            raise

    def _headers(self, member: Member) -> Headers:
        """Of a task without results as arguments; the members of a group share them."""
        key = (id(member.predecessors), member.collects, member.stops, member.number is None)
        headers = self._shared_headers.get(key)
        if headers is None:
            headers = self._shared_headers[key] = Headers(inputs=self._inputs(member))
        return headers

    def _inputs(self, member: Member) -> Inputs:
        call = member.call
        used = {number for each in self._argument_calls(call) for number in self._numbers(each)}
        total = 0
        members = 0
        if member.number is None:
            total = self._graph.counted
            members = len(self._graph.members)
        return Inputs(
            flow=self._flow,
            after=_ranges([number for number in member.predecessors if number not in used]),
            total=total,
            members=members,
            collects=member.collects,
            stops=member.stops,
            starts=self._starts and member.collects,
        )

    def _argument_calls(self, call: Call[Any]) -> Iterable[Call[Any]]:
        if isinstance(call, Group):
            return call.members
        return [result.call for result in results_in(call)]

    def _numbers(self, call: Call[Any]) -> Sequence[int]:
        """The tasks whose results are the result of a call."""
        if isinstance(call, Group) and not self._graph.is_joined(call):
            return [self._graph.numbers[id(each)] for each in call.members]
        return [self._graph.numbers[id(call)]]

    def _task_with_results(
        self, call: Call[Any], inputs: Inputs, uuid: str | None = None, links: Links | None = None
    ) -> NewTask:
        """A task whose body refers to the results that are its arguments."""
        arguments = call.definition.bind(call.args, call.kwargs)
        references: dict[str, Any] = {}
        results: dict[str, Raw] = {}
        failures: list[str] = []
        for name, value in arguments.items():
            if type(value) is FirstFailure:
                failures.append(name)
            elif is_placeholder(value) or _is_variadic(call, value):
                self._refer(call, name, value, references, results)
        linked = {*references, *results, *failures}
        known = {name: value for name, value in arguments.items() if name not in linked}
        headers = Headers(inputs=replace(inputs, args=references, failures=tuple(failures)), results=results or None)
        make = call.definition.linked_task
        return with_clear_error(call, make, arguments, known, call.call_options, headers, uuid, links)

    def _refer(
        self, call: Call[Any], name: str, value: Any, references: dict[str, Any], results: dict[str, Raw]
    ) -> None:
        """Enters an argument as a reference to results; one that needs none is known already."""
        if type(value) is Result and (not isinstance(value.call, Group) or self._graph.is_joined(value.call)):
            references[name] = self._numbers(value.call)[0]
            return
        items: list[Any] = []
        elements = [value] if type(value) is Result else cast("Iterable[object]", value)
        for index, item in enumerate(elements):
            if type(item) is Result:
                items += self._numbers(item.call)
            else:
                items.append(call.definition.store_item(name, item, index))
        if any(type(item) is int for item in items):
            references[name] = list(_ranges(items))
        else:
            results[name] = Raw(store_many(items))

    def _join(self, member: Member, group: Group[Any], uuid: str) -> NewTask:
        references: Mapping[str, Any] = {
            ITEMS: list(_ranges([self._graph.numbers[id(each)] for each in group.members]))
        }
        inputs = replace(self._inputs(member), args=dict(references))
        owner = _first_definition(group if group.members else self._graph.members[0].call).owner
        if self._join_policy is None:
            self._join_policy = Policy(boost=Policy().priority * AGING, reply_to=owner.client)
        body = write(StoredBody(inputs=inputs))
        return NewTask(uuid, JOIN, body, policy=self._join_policy, links=self._links.of(member, 0))


def _is_variadic(call: Call[Any], argument: object) -> bool:
    """The values of ``*args``, of which one is a result: any other tuple of results is refused."""
    if type(argument) is not tuple:
        return False
    elements = cast("tuple[object, ...]", argument)
    return any(type(each) is Result and any(each is known for known in call.args) for each in elements)


def _ranges(items: Sequence[Any]) -> tuple[Any, ...]:
    """Numbers that follow each other become one range; other items stay.

    >>> _ranges([4, 5, 6, 9, 8])
    ([4, 6], 9, 8)
    """
    found: list[Any] = []
    for item in items:
        before = found[-1] if found else None
        if type(item) is int and type(before) is int and before + 1 == item:
            found[-1] = [before, item]
        elif type(item) is int and type(before) is list and before[1] + 1 == item:
            before[1] = item
        else:
            found.append(item)
    return tuple(found)
