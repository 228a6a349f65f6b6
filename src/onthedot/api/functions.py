"""The function that ``@app.task`` returns: it stays callable, and has the methods that add tasks."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, Unpack, cast

from onthedot.api.flow_handles import AppFlows
from onthedot.api.handles import AsyncTaskHandle, TaskHandle
from onthedot.client.portal import Portal
from onthedot.codec.annotations import signature_of
from onthedot.definitions.functions import FunctionDefinition
from onthedot.definitions.new_task import check_conflict
from onthedot.definitions.remote import RemoteDefinition
from onthedot.definitions.sources import check_function
from onthedot.errors import ArgumentError, DeclarationError
from onthedot.flows.calls import Call
from onthedot.model.familiar_names import FUNCTION, SCHEDULED, missing_attribute
from onthedot.model.options import AddOptions, check_call
from onthedot.model.value_errors import InvalidOption
from onthedot.stores.capabilities import AsyncTransactions
from onthedot.stores.contract import Added, NewTask

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


class NewTasks(NamedTuple, Generic[R]):
    """Calls of any functions, checked and encoded. remote: the sources whose code is elsewhere."""

    calls: list[Call[R]]
    tasks: list[NewTask]
    remote: set[str]

    def answers(self, many: Sequence[Added]) -> list[tuple[str, Callable[[bytes], Any], bool]]:
        """For each handle: uuid, decoder of the result, and whether the task is new."""
        return [
            (added.uuid, call.decode_result, check_conflict(call.source, call.definition.options, new, added))
            for call, new, added in zip(self.calls, self.tasks, many, strict=True)
        ]


def new_tasks(portal: Portal, calls: Iterable[Call[R]]) -> NewTasks[R]:
    """portal: of the app to which they are added."""
    made = NewTasks[R]([], [], set())
    for call in calls:
        if not isinstance(call, Call):
            raise ArgumentError(f"{call!r} is no call; write f.s(…), as in app.delay_many([send.s('ann'), build.s()])")
        if call.origin().portal is not portal:
            raise ArgumentError(f"{call!r} is a call of another app, which adds it: {call.source}.delay_many([…])")
        made.calls.append(call)
        made.tasks.append(call.single_task())
        if call.definition.is_remote:
            made.remote.add(call.source)
    return made


class Enqueuer(Generic[P, R]):
    """The methods that add tasks: the same on a function and on ``function.options(…)``."""

    def __init__(
        self, portal: Portal, definition: FunctionDefinition | RemoteDefinition, call_options: AddOptions
    ) -> None:
        self._portal = portal
        self._definition = definition
        self._call_options = call_options
        self._flows = AppFlows(portal)

    if not TYPE_CHECKING:  # type checkers refuse the name themselves

        def __getattr__(self, name: str) -> object:
            raise missing_attribute(self, name, FUNCTION)

        def __or__(self, other: object) -> object:
            raise TypeError(f"{self._definition.name} is a task and no call: write {self._definition.name}.s(…) | …")

        def __ror__(self, other: object) -> object:
            raise TypeError(f"{other!r} is no call: write f.s(…) | {self._definition.name}, and delay() at the end")

    @property
    def definition(self) -> FunctionDefinition | RemoteDefinition:
        """For the packages of this project."""
        return self._definition

    @property
    def portal(self) -> Portal:
        """For the packages of this project: the same object for all tasks of an app."""
        return self._portal

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Adds a call; it is stored when this returns. For sync code; async code awaits ``enqueue``."""
        new = self._definition.new_task(args, kwargs, self._call_options)
        if "connection" in self._call_options:
            (added,) = self._add_in_transaction([new])
        else:
            added = self._portal.run_sync(lambda client: client.add(new, remote=self._definition.is_remote), adds=new)
        if added.uuid != new.uuid:
            self._check_added(new, added)
        return TaskHandle(self._portal, added.uuid, self._definition.decode_result, added.fresh)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncTaskHandle[R]:
        """Adds a call; it is stored when this returns."""
        new = self._definition.new_task(args, kwargs, self._call_options)
        if "connection" in self._call_options:
            (added,) = await self._add_in_transaction_awaited([new])
        elif self._definition.is_remote:
            added = await self._add_remote(new)
        else:  # no lambda: its cell is one tracked object more per pending call, and a burst would run the collector
            added = await self._portal.run(methodcaller("add", new), adds=new)
        if added.uuid != new.uuid:
            self._check_added(new, added)
        return AsyncTaskHandle(self._portal, added.uuid, self._definition.decode_result, added.fresh)

    def delay_many(self, calls: Iterable[Mapping[str, Any] | tuple[Any, ...] | Call[R]]) -> list[TaskHandle[R]]:
        """Adds many calls; all are checked before the first is stored. For sync code.

        Args:
            calls: Each a dict of arguments, a tuple of them, or a call: ``[{"to": "a"}, ("a", "hi"), send.s("a")]``.
        """
        news = [self._new_task(each) for each in calls]
        if "connection" in self._call_options:
            many = self._add_in_transaction(news)
        else:
            many = self._portal.run_sync(lambda client: client.add_many(news, self._remote_sources()), adds=news)
        decode = self._definition.decode_result
        return [
            TaskHandle(self._portal, added.uuid, decode, self._check_added(new, added))
            for new, added in zip(news, many, strict=True)
        ]

    async def enqueue_many(
        self, calls: Iterable[Mapping[str, Any] | tuple[Any, ...] | Call[R]]
    ) -> list[AsyncTaskHandle[R]]:
        """Adds many calls; all are checked before the first is stored. calls: as in `delay_many`."""
        news = [self._new_task(each) for each in calls]
        if "connection" in self._call_options:
            many = await self._add_in_transaction_awaited(news)
        else:
            many = await self._portal.run(lambda client: client.add_many(news, self._remote_sources()), adds=news)
        decode = self._definition.decode_result
        return [
            AsyncTaskHandle(self._portal, added.uuid, decode, self._check_added(new, added))
            for new, added in zip(news, many, strict=True)
        ]

    def s(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Returns the call without adding it."""
        if "connection" in self._call_options:
            name = f"{self._definition.name}.options(connection=…)"
            raise ArgumentError(
                f"{name}.s(…): a call that is not made joins nothing; write {name}.delay(…), or delay_many([…])"
            )
        try:
            self._definition.check_arguments(args, kwargs)
        except ArgumentError as error:
            if args or kwargs:
                raise
            advice = f"the result of a call before it is passed by … | {self._definition.name}, without .s()"
            raise ArgumentError(f"{error}; {advice}") from None
        return Call(self._flows, self._definition, args, kwargs, self._call_options)

    def _new_task(self, call: Mapping[str, Any] | tuple[Any, ...] | Call[R]) -> NewTask:
        definition = self._definition
        if isinstance(call, dict):  # first: this is asked for every call, and an abstract class answers slowly
            return definition.new_task((), call, self._call_options)
        if isinstance(call, tuple):
            return definition.new_task(call, {}, self._call_options)
        if isinstance(call, Call):
            if call.source != definition.name:
                raise ArgumentError(
                    f"{definition.name}: {call!r} is a call of another task; app.delay_many and app.enqueue_many take "
                    "calls of any tasks"
                )
            call.check_single()
            return definition.new_task(call.args, call.kwargs, {**self._call_options, **call.call_options})
        if isinstance(call, Mapping):
            return definition.new_task((), call, self._call_options)
        raise ArgumentError(
            f"{definition.name}: {call!r} is no call; write a dict of its arguments, a tuple of them, or "
            f"{definition.name}.s(…)"
        )

    async def _add_remote(self, new: NewTask) -> Added:
        return await self._portal.run(lambda client: client.add(new, remote=True), adds=new)

    def _remote_sources(self) -> tuple[str, ...]:
        return (self._definition.name,) if self._definition.is_remote else ()

    def _add_in_transaction(self, news: Sequence[NewTask]) -> Sequence[Added]:
        """Written now, on the caller's connection; visible with the caller's commit, or never."""
        connection = self._call_options.get("connection")
        news = self._portal.prepare_in_transaction(connection, news, remote=self._definition.is_remote)
        return self._portal.in_transaction(lambda store: store.add_in(connection, news))

    async def _add_in_transaction_awaited(self, news: Sequence[NewTask]) -> Sequence[Added]:
        async def add(store: AsyncTransactions) -> Sequence[Added]:
            remote = self._definition.is_remote
            tasks = await self._portal.run(lambda client: client.prepare(news, remote=remote))
            return await store.add_awaited(self._call_options.get("connection"), tasks)

        return await self._portal.in_transaction_awaited(add)

    def _check_added(self, new: NewTask, added: Added) -> bool:
        return check_conflict(self._definition.name, self._definition.options, new, added)


class TaskFunction(Enqueuer[P, R], Generic[P, C, R]):
    """A function with ``@app.task``. Calling it runs it at once, in place; ``delay`` and ``enqueue`` add a task.

    >>> from onthedot import App
    >>> app = App("shop", store="memory://")
    >>> @app.task
    ... def double(number: int) -> int:
    ...     return number * 2
    >>> double(4)
    8
    >>> with app.background():
    ...     double.delay(21).result(timeout=5)
    42
    """

    def __init__(self, portal: Portal, definition: FunctionDefinition) -> None:
        self._function = definition.function
        super().__init__(portal, definition, {})
        wrap(self, definition)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return cast(C, self._function(*args, **kwargs))

    @property
    def name(self) -> str:
        """The source of its tasks."""
        return self._definition.name

    def options(self, **options: Unpack[AddOptions]) -> Enqueuer[P, R]:
        """Returns an object with the same methods, whose calls have these options.

        Args:
            options: See `AddOptions`.
        """
        return Enqueuer(self._portal, self._definition, checked_options(self.name, options))

    def handle(self, uuid: str) -> TaskHandle[R]:
        """Returns the handle of a task that was added elsewhere, for sync code.

        Args:
            uuid: The id of the task.
        """
        return TaskHandle(self._portal, uuid, self._definition.decode_result, added=False)

    def ahandle(self, uuid: str) -> AsyncTaskHandle[R]:
        """Returns the handle of a task that was added elsewhere, for async code.

        Args:
            uuid: The id of the task.
        """
        return AsyncTaskHandle(self._portal, uuid, self._definition.decode_result, added=False)

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class ScheduledFunction(Generic[P, C]):
    """A function that runs only on schedule: it has no ``delay``."""

    def __init__(self, definition: FunctionDefinition) -> None:
        self._definition = definition
        wrap(self, definition)

    if not TYPE_CHECKING:  # type checkers refuse the name themselves

        def __getattr__(self, name: str) -> object:
            raise missing_attribute(self, name, SCHEDULED)

    @property
    def definition(self) -> FunctionDefinition:
        """For the packages of this project."""
        return self._definition

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return cast(C, self._definition.function(*args, **kwargs))

    @property
    def name(self) -> str:
        """The source of its tasks, and the name of its schedule."""
        return self._definition.name

    def __repr__(self) -> str:
        return f"<scheduled {self.name}>"


class NamedTask(Enqueuer[..., Any]):
    """A source by name, to add tasks without its code: arguments by keyword, checked where the task runs."""

    def options(self, **options: Unpack[AddOptions]) -> Enqueuer[..., Any]:
        """Returns an object with the same methods, whose calls have these options.

        Args:
            options: See `AddOptions`.
        """
        return Enqueuer(self._portal, self._definition, checked_options(self._definition.name, options))


def wrap(wrapper: Any, definition: FunctionDefinition) -> None:
    """Makes the object look like its function, also to ``inspect.iscoroutinefunction``, by which frameworks decide."""
    functools.update_wrapper(wrapper, definition.function)
    if not definition.is_async:
        return
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(wrapper)
    else:  # there inspect reads the flags of the code, of objects that have all attributes of a function
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            setattr(wrapper, name, getattr(definition.function, name, None))


def checked_options(name: str, options: AddOptions) -> AddOptions:
    try:
        return check_call(options)
    except (TypeError, ValueError) as error:
        raise InvalidOption(f"{name}.options(): {error}") from None


def with_parameter(function: Callable[[Any], Any], name: str, where: str) -> Callable[..., Any]:
    """Returns a function of one argument with the argument renamed, so that it can be added without its own name.

    >>> async def ship(order: int) -> str: ...
    >>> inspect.signature(with_parameter(ship, "payload", "topic 'orders'"))
    <Signature (payload: 'int')>
    """
    check_function(function, f"the handler of {where}")
    try:
        signature = signature_of(function)
        parameter = signature.parameters[next(iter(signature.bind(None).arguments))]
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{where}: {function!r} must take one argument, the {name}: {error}") from None
    inner: Any = getattr(function, "func", function)  # of a partial
    inner = inner if inspect.isroutine(inner) else type(inner).__call__

    async def in_loop(**arguments: Any) -> Any:
        return await function(arguments[name])

    def called(**arguments: Any) -> Any:
        return function(arguments[name])

    renamed: Any = in_loop if inspect.iscoroutinefunction(inner) else called
    annotation = parameter.annotation
    functools.update_wrapper(renamed, inner)  # with its module: there, what an annotation names is looked up
    renamed.__annotations__ = {} if annotation is parameter.empty else {name: annotation}
    renamed.__signature__ = inspect.Signature(
        [inspect.Parameter(name, parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)]
    )
    return cast(Callable[..., Any], renamed)
