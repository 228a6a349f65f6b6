"""A function as a source: its definition is checked once, and a call of it becomes a new task."""

from __future__ import annotations

import inspect
import string
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from msgspec import Raw

from onthedot.codec.body import NO_HEADERS, Caps, Headers, ResultNotEncodable
from onthedot.codec.functions import FunctionCodec
from onthedot.definitions.new_task import NO_OPTIONS, TaskOwner, TaskTemplate, new_task, task_policy
from onthedot.definitions.sources import is_stream_function, module_of
from onthedot.errors import DeclarationError
from onthedot.model.context import current_run
from onthedot.model.executor_names import ASYNC, THREAD
from onthedot.model.limits import LimitDefinitions
from onthedot.model.options import AddOptions, ResolvedOptions
from onthedot.model.streams import MAX_ITEM, STREAM_KEEP, StreamedItems
from onthedot.stores.contract import Limit, Links, NewTask, Policy


class FunctionDefinition:
    """A function as a source. The engine reads, calls and encodes through it."""

    is_remote = False

    def __init__(
        self, owner: TaskOwner, function: Callable[..., object], name: str, options: ResolvedOptions, caps: Caps
    ) -> None:
        self.is_stream: bool = is_stream_function(function)
        if self.is_stream:
            options = _kept_for_readers(options)
            caps = replace(caps, result=min(caps.result, MAX_ITEM))
        self.name = name
        self.options = options
        self.function = function
        self.module: str = module_of(function)
        self.codec: FunctionCodec = FunctionCodec(function, name, caps, is_stream=self.is_stream)
        self.decode: Callable[[bytes], tuple[dict[str, Any], Headers]] = self.codec.decode
        self.call: Callable[[dict[str, Any]], object] = self.codec.call
        self.encode: Callable[[object], bytes] = self.codec.encode_result
        self.decode_result: Callable[[bytes], Any] = self.codec.decode_result
        if self.is_stream:
            self.call = self._save_stream
            self.encode = self._encode_stream
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self.owner: TaskOwner = owner
        self._defaults = {
            parameter.name: parameter.default
            for parameter in inspect.signature(function).parameters.values()
            if parameter.default is not parameter.empty
        }
        self._limits = LimitDefinitions(
            name, options.concurrency, options.rate_limit, options.limits, self.codec.parameters, self._defaults
        )
        self._template = TaskTemplate(owner, name, options, self._limits, caps)
        has_lane = any(limit.name != name for limit in self._limits.records())
        self._plain_policy: Policy | None = None  # without call options, for the current client
        self._is_plain = not (options.unique or options.label or has_lane)
        self._check()

    def _check(self) -> None:
        if self.is_stream and self.options.executor not in (None, ASYNC):
            raise DeclarationError(
                f"task {self.name!r}: an async generator runs on the event loop; executor={self.options.executor!r} "
                "cannot run it"
            )
        if self.is_async and self.options.executor == THREAD:
            raise DeclarationError(f"task {self.name!r}: an async function runs on the event loop, not in a thread")
        if not self.is_async and not self.is_stream and self.options.executor == ASYNC:
            raise DeclarationError(
                f"task {self.name!r}: executor='async' takes an `async def`; a plain function would hold up the event "
                "loop and all that runs on it: leave executor out, and it runs in a thread"
            )
        for what, template in (("unique", self.options.unique), ("label", self.options.label)):
            if isinstance(template, str):
                _check_template(self.name, what, template, self.codec.parameters)

    # -- for the engine

    @property
    def executor(self) -> str:
        if self.options.executor:
            return self.options.executor
        return ASYNC if self.is_async or self.is_stream else self.owner.sync_executor

    async def _save_stream(self, arguments: dict[str, Any]) -> object:
        """Runs a stream to its end, in the context of its run."""
        run = current_run()
        assert run is not None
        run.stream = run.reports.stream_run(run)
        items = cast("AsyncGenerator[object, None]", self.codec.call(arguments))
        return await run.stream.save(items, self.codec.encode_result)

    def _encode_stream(self, value: object) -> bytes:
        if not isinstance(value, StreamedItems):
            raise ResultNotEncodable(f"{self.name}: middleware has replaced the result of a stream, which is its items")
        return value.encode()

    def max_running(self) -> int | None:
        return None

    def limits(self, name: str) -> list[Limit]:
        return self._limits.to_limits(name)

    # -- for adding tasks

    def check_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raises ArgumentError if the function would not take these arguments."""
        self.codec.check(args, kwargs)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return self.codec.bind(args, kwargs)

    def new_task(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        call_options: AddOptions = NO_OPTIONS,
        flow: Headers = NO_HEADERS,
        uuid: str | None = None,
        links: Links | None = None,
    ) -> NewTask:
        """Binds, checks and encodes, before anything is stored. flow, uuid, links: of a member of a flow."""
        if self._is_plain and not call_options:  # no key, lane, label or time to compute
            policy = self._plain_policy
            if policy is None or policy.reply_to is not self.owner.client:
                policy = self._plain_policy = task_policy(self._template, NO_OPTIONS)
            body = self.codec.encode(args, kwargs, flow)
            return NewTask(uuid or self.owner.new_uuid(), self.name, body, policy=policy, links=links)
        arguments = {**self._defaults, **self.codec.bind(args, kwargs)}
        encode = partial(self.codec.encode, args, kwargs)
        return new_task(self._template, arguments, call_options, encode, flow=flow, uuid=uuid, links=links)

    def linked_task(
        self,
        arguments: Mapping[str, Any],
        known: Mapping[str, Any],
        call_options: AddOptions,
        flow: Headers,
        uuid: str | None = None,
        links: Links | None = None,
    ) -> NewTask:
        """Makes a member of a flow. arguments: as `bind` returns them; known: those that are no results of others."""
        encode = partial(self.codec.encode_given, known)
        given = {**self._defaults, **arguments}
        return new_task(self._template, given, call_options, encode, flow=flow, uuid=uuid, links=links)

    def store_item(self, name: str, value: object, index: int) -> Raw:
        """A plain element in a list of results."""
        return self.codec.store_item(name, value, index)


def _kept_for_readers(options: ResolvedOptions) -> ResolvedOptions:
    """The items of an ended stream are kept for a while: they are dropped with its record, and readers need them."""
    return replace(
        options,
        keep=max(options.keep, STREAM_KEEP),
        keep_failed=max(options.keep_failed, STREAM_KEEP),
        keep_result=max(options.keep_result, STREAM_KEEP),
    )


def _check_template(name: str, option: str, template: str, parameters: tuple[str, ...]) -> None:
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise DeclarationError(f"task {name!r}: {option}={template!r} is not a template: {error}") from None
    for field in fields:
        first = field.partition(".")[0].partition("[")[0]
        if first not in parameters:
            raise DeclarationError(f"task {name!r}: {option}={template!r} names {first!r}, which is no parameter of it")
