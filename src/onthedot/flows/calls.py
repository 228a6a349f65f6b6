"""Calls that have not been made, and how they are linked: values that nothing has stored yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from onthedot.codec.task_failure import TaskFailure
from onthedot.errors import ArgumentError
from onthedot.model.familiar_names import CALL, missing_attribute
from onthedot.model.options import AddOptions

if TYPE_CHECKING:
    from onthedot.api.flow_handles import AsyncFlowHandle, FlowHandle
    from onthedot.api.functions import Enqueuer
    from onthedot.definitions.functions import FunctionDefinition
    from onthedot.definitions.remote import RemoteDefinition
    from onthedot.stores.contract import NewTask

__all__ = ["Call", "Takes"]

Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
A_contra = TypeVar("A_contra", contravariant=True)
MISPLACED_RESULT = "a result can be an argument or an element of a list of results"


class FlowAdder(Protocol):
    """Adds calls of one app; the api implements it."""

    @property
    def portal(self) -> object:
        """The same object for all calls of an app."""
        ...

    def delay(self, call: Call[R], uuid: str | None, connection: Any) -> FlowHandle[R]: ...
    async def enqueue(self, call: Call[R], uuid: str | None, connection: Any) -> AsyncFlowHandle[R]: ...
    def spawn(self, call: Call[R], flow: str | None, owner: object) -> tuple[list[NewTask], FlowHandle[R]]:
        """The tasks of a call that the end of a running task adds.

        flow, owner: that the running task belongs to
        """
        ...


class Result:
    """Stands for the result of a call, until the call has run."""

    __slots__ = ("call",)

    def __init__(self, call: Call[Any]) -> None:
        self.call: Call[Any] = call

    def __repr__(self) -> str:
        return f"<result of {self.call.source}>"

    def __str__(self) -> str:
        raise ArgumentError(f"the result of {self.call.source} is not known before it runs; {MISPLACED_RESULT}")

    def __format__(self, spec: str) -> str:
        return str(self)


class FirstFailure:
    """Stands for the first failure of a flow, until the flow has failed."""

    def __repr__(self) -> str:
        return "<first failure of the flow>"


class Handler(NamedTuple):
    """A call that runs after the last task of its flow."""

    call: Call[Any]
    requires: Literal["failure", "any"]


class Relations(NamedTuple):
    """The calls that a call follows, apart from its arguments, and the handlers that it carries.

    after: calls that end before this one starts
    first_after: calls that end before the first tasks of this one's expression start
    """

    after: tuple[Call[Any], ...] = ()
    first_after: tuple[Call[Any], ...] = ()
    handlers: tuple[Handler, ...] = ()


NO_RELATIONS = Relations()


class Takes(Protocol[A_contra, R_co]):
    """A task that can be called with this one argument."""

    def s(self, result: A_contra, /) -> Call[R_co]:
        """Returns the call with this argument.

        Args:
            result: The argument, or what stands for it.
        """
        ...


class Call(Generic[R_co]):
    """A call that has not been made, from ``send.s("ann")``: for flows, ``app.delay_many``, ``ctx.spawn``, schedules.

    It is immutable: every method returns a new call. ``call.result`` stands for its result and may be an argument of
    another call; a flow is all that the enqueued call needs.

    >>> from onthedot import App
    >>> app = App("shop", store="memory://")
    >>> @app.task
    ... def double(number: int) -> int:
    ...     return number * 2
    >>> call = double.s(21)
    >>> call
    double(21)
    >>> with app.background():
    ...     call.delay().result(timeout=5)
    ...     (double.s(1) | double | double).delay().result(timeout=5)
    42
    8
    """

    __slots__ = ("adder", "args", "call_options", "definition", "kwargs", "relations")

    def __init__(
        self,
        adder: FlowAdder,
        definition: FunctionDefinition | RemoteDefinition,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        call_options: AddOptions,
        relations: Relations = NO_RELATIONS,
    ) -> None:
        self.adder: FlowAdder = adder
        self.definition: FunctionDefinition | RemoteDefinition = definition
        self.args: tuple[Any, ...] = args
        self.kwargs: Mapping[str, Any] = kwargs
        self.call_options: AddOptions = call_options
        self.relations: Relations = relations

    if not TYPE_CHECKING:  # type checkers refuse the name themselves

        def __getattr__(self, name: str) -> object:
            raise missing_attribute(self, name, CALL)

    @property
    def result(self) -> R_co:
        """Stands for the result, as an argument of another call or in a list of results."""
        return cast("R_co", Result(self))

    @property
    def source(self) -> str:
        """The source of its task."""
        return self.definition.name

    @overload
    def __or__(self, other: Call[S]) -> Call[S]: ...
    @overload
    def __or__(self, other: Takes[R_co, S]) -> Call[S]: ...
    def __or__(self, other: Call[S] | Takes[R_co, S]) -> Call[S]:
        """A function receives this result as its first argument; a call just runs after this one."""
        if isinstance(other, Call):
            known: Call[S] = other
            return known.related(known.relations._replace(first_after=(*known.relations.first_after, self)))
        return _bound(other, self.result)

    def then(self, task: Enqueuer[Concatenate[R_co, Q], S], *args: Q.args, **kwargs: Q.kwargs) -> Call[S]:
        """Calls a task with this result and further arguments.

        Args:
            task: Receives this result as its first argument.
            args: Its further arguments.
            kwargs: Its further arguments, by name.
        """
        return _bound(task, self.result, *args, **kwargs)

    def after(self, *calls: Call[Any]) -> Call[R_co]:
        """Runs this call after others, whose results it does not get.

        Args:
            calls: They end before it starts; of a group, all members.
        """
        check_calls(calls, "after()")
        return self.related(self.relations._replace(after=(*self.relations.after, *calls)))

    def on_failure(self, handler: Takes[TaskFailure, Any] | Call[Any]) -> Call[R_co]:
        """Runs a task if the flow fails or is cancelled, whichever of its calls carries the handler.

        Args:
            handler: A task that takes the `TaskFailure` of the first failure, or a call.
        """
        if not isinstance(handler, Call):
            handler = _bound(handler, cast("Any", FirstFailure()))
        return self._handled(Handler(handler, "failure"))

    def always(self, handler: Call[Any]) -> Call[R_co]:
        """Runs a call after any end of the flow, whichever of its calls carries the handler.

        Args:
            handler: The call, such as a clean-up.
        """
        check_calls([handler], "always()")
        return self._handled(Handler(handler, "any"))

    def delay(self, *, uuid: str | None = None, connection: Any = None) -> FlowHandle[R_co]:
        """Adds the call and all that it needs; they are stored when this returns. For sync code.

        Args:
            uuid: The id of the flow, which is that of its last task. The same id again: the first flow remains.
            connection: Adds it in your transaction, as ``options(connection=…)`` does.
        """
        return self.origin().delay(self, uuid, connection)

    async def enqueue(self, *, uuid: str | None = None, connection: Any = None) -> AsyncFlowHandle[R_co]:
        """Adds the call and all that it needs; they are stored when this returns.

        Args:
            uuid: The id of the flow, which is that of its last task. The same id again: the first flow remains.
            connection: Adds it in your transaction, as ``options(connection=…)`` does.
        """
        return await self.origin().enqueue(self, uuid, connection)

    def __repr__(self) -> str:
        shown = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.source}({', '.join(shown)})"

    # -- for the packages of this project

    def origin(self) -> FlowAdder:
        """Adds it to its app."""
        return self.adder

    def decode_result(self, data: bytes) -> Any:
        return self.definition.decode_result(data)

    def related(self, relations: Relations) -> Call[R_co]:
        """The same call with other relations."""
        return Call(self.adder, self.definition, self.args, self.kwargs, self.call_options, relations)

    def check_single(self) -> None:
        """Raises ArgumentError if it is linked to other calls."""
        arguments = (*self.args, *self.kwargs.values())
        if self.relations is not NO_RELATIONS or any(type(each) is Result for each in arguments):
            raise ArgumentError(f"{self!r} is part of a flow: add it with .delay() or .enqueue()")

    def single_task(self) -> NewTask:
        """The task of a call that is linked to no other."""
        self.check_single()
        return with_clear_error(self, self.definition.new_task, self.args, self.kwargs, self.call_options)

    def _handled(self, handler: Handler) -> Call[R_co]:
        return self.related(self.relations._replace(handlers=(*self.relations.handlers, handler)))


def with_clear_error(call: Call[Any], make: Callable[..., NewTask], *parts: Any) -> NewTask:
    """Makes a task of its parts; a result in the wrong place is reported as such, not as an unknown value."""
    try:
        return make(*parts)
    except ArgumentError:
        check_results(call)
        raise


def check_results(call: Call[Any]) -> None:
    """Raises ArgumentError for a result inside of an argument that is no list."""
    for value in (*call.args, *call.kwargs.values()):
        for each in cast("list[object]", value) if type(value) is list else [value]:
            found = _find_result(each)
            if found is not None and found is not each:
                kind = type(each).__name__
                raise ArgumentError(f"{call.source}: {found!r} is in a {kind}: {MISPLACED_RESULT}") from None


def _find_result(value: object, depth: int = 8) -> object:
    if isinstance(value, Result | FirstFailure):
        return value
    if isinstance(value, Mapping):
        value = list(cast("Mapping[object, object]", value).values())
    if isinstance(value, list | tuple | set | frozenset) and depth:
        for each in cast("Iterable[object]", value):
            if (found := _find_result(each, depth - 1)) is not None:
                return found
    return None


def check_calls(calls: Iterable[object], where: str) -> None:
    """Raises ArgumentError for anything that is no call."""
    for call in calls:
        if not isinstance(call, Call):
            raise ArgumentError(f"{where}: {call!r} is no call; write f.s(…)")


def _bound(task: Any, *args: Any, **kwargs: Any) -> Call[Any]:
    definition = getattr(task, "definition", None)
    if definition is None or not hasattr(task, "s"):
        raise ArgumentError(f"{task!r} is no task; declare it with @app.task")
    codec = getattr(definition, "codec", None)
    if codec is not None and not codec.parameters:
        raise ArgumentError(f"{definition.name} takes no argument: write {definition.name}.s()")
    try:
        return cast("Call[Any]", task.s(*args, **kwargs))
    except ArgumentError as error:
        if type(args[0]) is not Result:
            raise
        raise ArgumentError(f"{error}; write ….then({definition.name}, …) with further arguments") from None
