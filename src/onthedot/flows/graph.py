"""The graph of an expression: which tasks it has, in which order, and what each of them follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from msgspec import Struct

from onthedot.errors import ArgumentError
from onthedot.flows.calls import NO_RELATIONS, Call, FirstFailure, FlowAdder, Handler, Result
from onthedot.flows.groups import Group

MAX_PATH = 1000  # tasks on the longest path
_PLACEHOLDERS: frozenset[type] = frozenset({FirstFailure, Result})
JOIN_ADVICE = "put a joining task between"


class Member(Struct, eq=False, gc=False):
    """A task of a flow. number: None of the last one, whose uuid is the flow's id.

    predecessors: numbers of the tasks that end before it starts; one object for members with the same ones
    collects: it runs although some of them failed
    stops: its failure cancels members that have not started
    is_join: it joins the results of a group
    """

    call: Call[Any]
    number: int | None = None
    predecessors: tuple[int, ...] = ()
    collects: bool = False
    stops: bool = False
    is_join: bool = False


@dataclass
class Graph:
    """The members of a flow, each after those that it follows; the last one is not among them."""

    members: list[Member]
    last: Member
    handlers: list[Handler]
    numbers: dict[int, int]  # of members, by the id of their call
    joined: frozenset[int]  # ids of the groups whose results a task of its own joins

    def __len__(self) -> int:
        """The number of tasks, handlers included."""
        return len(self.members) + 1 + len(self.handlers)

    def is_joined(self, group: Group[Any]) -> bool:
        return id(group) in self.joined

    @property
    def counted(self) -> int:
        """The number of tasks, without joins."""
        return sum(not member.is_join for member in (*self.members, self.last))


def build_graph(last: Call[Any], max_flow: int) -> Graph:
    """Checks the expression and numbers its tasks. Raises ArgumentError."""
    return _Builder(last, max_flow).build()


def arguments_of(call: Call[Any]) -> tuple[object, ...]:
    if call.kwargs:
        return (*call.args, *call.kwargs.values())
    return call.args


def results_of(argument: object) -> list[Result]:
    """The argument, if it is a result, or its elements that are."""
    if type(argument) is Result:
        return [argument]
    if type(argument) is list:
        return [each for each in cast("list[object]", argument) if type(each) is Result]
    return []


def results_in(call: Call[Any]) -> list[Result]:
    """The results that are arguments of a call, or elements of one."""
    found: list[Result] = []
    for argument in arguments_of(call):
        if type(argument) is Result:
            found.append(argument)
        elif type(argument) is list:
            found += results_of(cast("list[object]", argument))
    return found


def is_placeholder(argument: object) -> bool:
    """Whether it is known only after other tasks have run."""
    if type(argument) is list:
        return bool(results_of(cast("list[object]", argument)))
    return type(argument) in _PLACEHOLDERS


def has_placeholders(call: Call[Any]) -> bool:
    """Whether some of its arguments are known only after other tasks have run."""
    return bool(call.args or call.kwargs) and any(map(is_placeholder, arguments_of(call)))


@dataclass
class _Builder:
    last: Call[Any]
    max_flow: int
    calls: dict[int, Call[Any]] = field(default_factory=dict[int, Call[Any]])  # in the order of their discovery
    follows: dict[int, dict[int, None]] = field(
        default_factory=dict[int, dict[int, None]]
    )  # of calls that follow any; by ids
    handlers: list[Handler] = field(default_factory=list[Handler])
    collecting: set[int] = field(default_factory=set[int])  # groups with on_error="collect"
    resolved: dict[tuple[int, ...], dict[int, None]] = field(default_factory=dict[tuple[int, ...], dict[int, None]])

    def build(self) -> Graph:
        self._discover()
        for key, call in self.calls.items():  # inner expressions first
            if call.relations is not NO_RELATIONS and call.relations.first_after:
                self._add_first(key, call.relations.first_after)
        joined = frozenset(self._joined())
        tasks = [key for key, call in self.calls.items() if not isinstance(call, Group) or key in joined]
        before_last = len(tasks) - 1
        if before_last > self.max_flow:
            raise ArgumentError(
                f"the flow has more than {self.max_flow:,} tasks before its last one ({before_last:,}); {JOIN_ADVICE} "
                "that spawns the rest, or raise App(max_flow=…)"
            )
        none: dict[int, None] = {}
        predecessors = {key: self._resolved(key, joined) if key in self.follows else none for key in tasks}
        levels = self._levels(tasks, predecessors)
        longest = max(levels.values())
        if longest > MAX_PATH:
            raise ArgumentError(
                f"the longest path of the flow has {longest:,} tasks, and {MAX_PATH:,} are allowed: {JOIN_ADVICE} that "
                "spawns the rest"
            )
        return self._graph(joined, predecessors, sorted(tasks, key=levels.__getitem__))

    def _graph(self, joined: frozenset[int], predecessors: dict[int, dict[int, None]], tasks: Sequence[int]) -> Graph:
        last = id(self.last)
        numbers = {key: number for number, key in enumerate(key for key in tasks if key != last)}
        stopping = {
            id(member)
            for call in map(self.calls.__getitem__, self.follows)
            if isinstance(call, Group) and call.on_error == "stop"
            for member in call.members
        }
        numbers_of: dict[int, tuple[int, ...]] = {}  # by the id of a set; tasks that follow the same ones share one
        members: list[Member] = []
        before: dict[int, None] | None = None
        followed: tuple[int, ...] = ()
        for key in tasks:
            if predecessors[key] is not before:  # those of a group follow the same ones
                before = predecessors[key]
                if id(before) not in numbers_of:
                    numbers_of[id(before)] = tuple([numbers[each] for each in before])
                followed = numbers_of[id(before)]
            collects = bool(self.collecting) and self._collects(key, joined)
            member = Member(self.calls[key], numbers.get(key), followed, collects, key in stopping, key in joined)
            members.append(member)
        ending = next(member for member in reversed(members) if member.number is None)
        members.remove(ending)
        return Graph(members, ending, self.handlers, numbers, joined)

    # -- discovery

    def _discover(self) -> None:
        """All calls that the last one needs, each after those that its arguments and relations name."""
        portal = self.last.origin().portal
        begun: set[int] = set()
        stack: list[tuple[Call[Any], list[Call[Any]] | None]] = [(self.last, None)]
        while stack:
            call, direct = stack.pop()
            if direct is not None:  # all that it needs has been visited
                self._visit(call, direct, portal)
                continue
            if id(call) in begun:
                continue
            begun.add(id(call))
            direct = _direct(call)
            needed = direct
            if call.relations is not NO_RELATIONS:
                needed = [*direct, *call.relations.after, *call.relations.first_after]
            stack.append((call, direct))
            if all(map(_needs_nothing, needed)):  # most members of most groups
                self._visit_leaves(needed, portal)
            else:
                stack += [(each, None) for each in reversed(needed) if id(each) not in begun]

    def _visit_leaves(self, calls: Iterable[Call[Any]], portal: object) -> None:
        known: FlowAdder | None = None  # most calls share one
        for call in calls:
            if call.adder is not known:
                known = call.adder
                if known.portal is not portal:
                    raise _other_app(call)
            self.calls.setdefault(id(call), call)

    def _visit(self, call: Call[Any], direct: list[Call[Any]], portal: object) -> None:
        key = id(call)
        is_group = isinstance(call, Group)
        if isinstance(call, Group) and call.on_error == "collect":
            self.collecting.add(key)
        if (direct or not is_group) and call.origin().portal is not portal:  # an empty group has none
            raise _other_app(call)
        self.calls[key] = call
        if direct:
            self.follows[key] = dict.fromkeys(map(id, direct))
        if call.relations is NO_RELATIONS:
            return
        if is_group:
            self._add_first(key, call.relations.after)  # what a group follows, its first tasks follow
        for handler in call.relations.handlers:
            _check_handler(handler)
            self.handlers.append(handler)

    def _add_first(self, key: int, others: Iterable[Call[Any]]) -> None:
        """The first tasks of the expression follow the others, unless the others need them."""
        for other in others:
            own = self._reachable(key)
            if len(own) > 1:
                own -= self._reachable(id(other))
            for each in own:
                if own.isdisjoint(self.follows.get(each, ())):
                    self.follows.setdefault(each, {})[id(other)] = None

    def _reachable(self, start: int) -> set[int]:
        found = {start}
        stack = [start]
        while stack:
            for key in self.follows.get(stack.pop(), ()):
                if key not in found:
                    found.add(key)
                    stack.append(key)
        return found

    # -- joins

    def _joined(self) -> Iterator[int]:
        """Groups whose results are one value of their own, or whose collected failures must not meet others."""
        if isinstance(self.last, Group):
            yield id(self.last)
        for key in self.follows:
            call = self.calls[key]
            if isinstance(call, Group):
                yield from (id(each) for each in call.members if isinstance(each, Group))
                continue
            for argument in arguments_of(call):
                if type(argument) is list:
                    calls = [result.call for result in results_of(cast("list[object]", argument))]
                    yield from (id(each) for each in calls if isinstance(each, Group))
            if len(self.follows[key]) > 1:
                yield from (each for each in self.follows[key] if each in self.collecting)

    def _collects(self, key: int, joined: frozenset[int]) -> bool:
        """The task follows a collecting group alone, or joins one."""
        if key in joined:
            return key in self.collecting
        return any(each in self.collecting and each not in joined for each in self.follows.get(key, ()))

    # -- order

    def _resolved(self, key: int, joined: frozenset[int]) -> dict[int, None]:
        """The tasks that it follows: the members of a group that is not joined. One object for the same ones."""
        followed = tuple(self.follows[key])
        found = self.resolved.get(followed)
        if found is None:
            found = self.resolved[followed] = {}
            for each in followed:
                if isinstance(self.calls[each], Group) and each not in joined:
                    found |= self.follows.get(each, {})
                else:
                    found[each] = None
        return found

    def _levels(self, tasks: Sequence[int], predecessors: dict[int, dict[int, None]]) -> dict[int, int]:
        """The number of tasks on the longest path to each, so that a task comes after all that it follows."""
        levels = {key: 1 for key, before in predecessors.items() if not before}
        after: dict[int, int] = {}  # the level of what follows a set, by the id of the set
        stack = [key for key in reversed(tasks) if predecessors[key]]
        while stack:
            key = stack[-1]
            if key in levels:
                stack.pop()
                continue
            before = predecessors[key]
            level = after.get(id(before))
            if level is None:
                missing = [each for each in before if each not in levels]
                if missing:
                    stack += missing
                    continue
                level = after[id(before)] = 1 + max([levels[each] for each in before], default=0)
            levels[key] = level
            stack.pop()
        return levels


def _needs_nothing(call: Call[Any]) -> bool:
    """A plain call, whose arguments are known and which follows no other."""
    if isinstance(call, Group) or call.relations is not NO_RELATIONS:
        return False
    return not (call.args or call.kwargs) or not results_in(call)


def _other_app(call: Call[Any]) -> ArgumentError:
    return ArgumentError(f"{call!r} is a call of another app; a flow is in one store")


def _direct(call: Call[Any]) -> list[Call[Any]]:
    if isinstance(call, Group):
        return list(call.members)
    direct = [result.call for result in results_in(call)]
    if call.relations is not NO_RELATIONS:
        direct += call.relations.after
    return direct


def _check_handler(handler: Handler) -> None:
    call = handler.call
    needs = isinstance(call, Group) or bool(results_in(call)) or any(call.relations)
    if needs:
        raise ArgumentError(f"the handler {call!r} is a flow; a handler is one task, which may spawn a flow")
