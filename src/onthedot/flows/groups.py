"""Groups: calls that run side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, TypeVar, overload

from onthedot.codec.results import read_failure, split_many
from onthedot.codec.task_failure import TaskFailure
from onthedot.errors import ArgumentError
from onthedot.flows.calls import NO_RELATIONS, Call, FlowAdder, Relations, check_calls
from onthedot.model.flow_names import JOIN

__all__ = ["Group", "group"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")
A5 = TypeVar("A5")
OnError: TypeAlias = Literal["fail", "stop", "collect"]


class Group(Call[R_co]):
    """Calls that run side by side, from ``group(…)``. Its result is the list of theirs, or a tuple.

    >>> from onthedot import App, group
    >>> app = App("shop", store="memory://")
    >>> @app.task
    ... def double(number: int) -> int:
    ...     return number * 2
    >>> @app.task
    ... def total(numbers: list[int]) -> int:
    ...     return sum(numbers)
    >>> with app.background():
    ...     (group(double.s(number) for number in range(4)) | total).delay().result(timeout=5)
    12
    """

    __slots__ = ("is_tuple", "members", "on_error")

    def __init__(
        self, members: tuple[Call[Any], ...], on_error: OnError, *, is_tuple: bool, relations: Relations = NO_RELATIONS
    ) -> None:
        self.members: tuple[Call[Any], ...] = members
        self.on_error: OnError = on_error
        self.is_tuple: bool = is_tuple
        self.relations = relations

    @property
    def source(self) -> str:
        """The source of the task that joins its results, if nothing follows the group."""
        return JOIN

    def origin(self) -> FlowAdder:
        for call in (*self.members, *self.relations.after, *self.relations.first_after):
            return call.origin()
        raise ArgumentError("an empty group belongs to no app: write group([]) | f, or leave it out")

    def decode_result(self, data: bytes) -> Any:
        items = zip(split_many(data), self.members, strict=True)
        values = [read_failure(item) or call.decode_result(item) for item, call in items]
        if self.is_tuple:
            return tuple(values)
        return values

    def related(self, relations: Relations) -> Group[R_co]:
        return Group(self.members, self.on_error, is_tuple=self.is_tuple, relations=relations)

    def check_single(self) -> None:
        raise ArgumentError(f"{self!r} is a flow: add it with .delay() or .enqueue()")

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.members[:3]))
        return f"group({shown}{', …' if len(self.members) > 3 else ''})"


@overload
def group(calls: Iterable[Call[R]], /, *, on_error: Literal["fail", "stop"] = "fail") -> Group[list[R]]: ...
@overload
def group(calls: Iterable[Call[R]], /, *, on_error: Literal["collect"]) -> Group[list[R | TaskFailure]]: ...
@overload
def group(a: Call[A1], b: Call[A2], /, *, on_error: Literal["fail", "stop"] = "fail") -> Group[tuple[A1, A2]]: ...
@overload
def group(
    a: Call[A1], b: Call[A2], c: Call[A3], /, *, on_error: Literal["fail", "stop"] = "fail"
) -> Group[tuple[A1, A2, A3]]: ...
@overload
def group(
    a: Call[A1], b: Call[A2], c: Call[A3], d: Call[A4], /, *, on_error: Literal["fail", "stop"] = "fail"
) -> Group[tuple[A1, A2, A3, A4]]: ...
@overload
def group(
    a: Call[A1], b: Call[A2], c: Call[A3], d: Call[A4], e: Call[A5], /, *, on_error: Literal["fail", "stop"] = "fail"
) -> Group[tuple[A1, A2, A3, A4, A5]]: ...
@overload
def group(
    a: Call[A1], b: Call[A2], /, *, on_error: Literal["collect"]
) -> Group[tuple[A1 | TaskFailure, A2 | TaskFailure]]: ...
@overload
def group(
    a: Call[A1], b: Call[A2], c: Call[A3], /, *, on_error: Literal["collect"]
) -> Group[tuple[A1 | TaskFailure, A2 | TaskFailure, A3 | TaskFailure]]: ...
@overload
def group(
    a: Call[A1], b: Call[A2], c: Call[A3], d: Call[A4], /, *, on_error: Literal["collect"]
) -> Group[tuple[A1 | TaskFailure, A2 | TaskFailure, A3 | TaskFailure, A4 | TaskFailure]]: ...
@overload
def group(
    a: Call[A1], b: Call[A2], c: Call[A3], d: Call[A4], e: Call[A5], /, *, on_error: Literal["collect"]
) -> Group[tuple[A1 | TaskFailure, A2 | TaskFailure, A3 | TaskFailure, A4 | TaskFailure, A5 | TaskFailure]]: ...
def group(calls: Any, /, *more: Call[Any], on_error: OnError = "fail") -> Group[Any]:
    """Runs calls side by side; what follows gets the list of their results, in this order.

    Args:
        calls: The calls, as a list or a generator; the result is a list. Or two to five calls as arguments of their
            own, of any types; the result is a tuple.
        more: The second to the fifth call.
        on_error: "fail": what follows a failed call is cancelled, and everything else goes on. "stop": as "fail", and
            the calls of the flow that have not started are cancelled. "collect": what follows runs, and gets a
            `TaskFailure` in place of a missing result.
    """
    if on_error not in ("fail", "stop", "collect"):
        raise ArgumentError(f"group(on_error={on_error!r}): it is fail, stop or collect")
    is_tuple = isinstance(calls, Call)
    if more and not is_tuple:
        raise ArgumentError("group(): pass one list of calls, or two to five calls")
    if is_tuple:
        calls = (calls, *more)
    members: tuple[Call[Any], ...] = tuple(calls)
    check_calls(members, "group()")
    if len({id(call) for call in members}) < len(members):
        twice = next(call for at, call in enumerate(members) if any(call is each for each in members[:at]))
        raise ArgumentError(f"group(): {twice!r} is in it twice, and a call runs once; make a second one with .s(…)")
    return Group(members, on_error, is_tuple=is_tuple)
