"""A source that is known by name only: its arguments are checked where its code is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import Raw

from onthedot.codec.body import DEFAULT_CAPS, NO_HEADERS, Headers, refusal
from onthedot.codec.results import store_untyped_item
from onthedot.codec.tagged_json import Unstorable
from onthedot.codec.untyped import decode_untyped_result, encode_untyped
from onthedot.definitions.new_task import NO_OPTIONS, TaskOwner, TaskTemplate, new_task, new_task_from
from onthedot.errors import ArgumentError
from onthedot.model.limits import LimitDefinitions
from onthedot.model.options import AddOptions, ResolvedOptions
from onthedot.model.task import Task
from onthedot.stores.contract import Links, NewTask


class RemoteDefinition:
    """A source without a signature: its code is elsewhere, or it is a consumer of this process.

    limits: of a consumer of this process; None: the code is elsewhere, so the store knows its lanes
    """

    def __init__(
        self, owner: TaskOwner, name: str, options: ResolvedOptions, limits: LimitDefinitions | None = None
    ) -> None:
        self.owner: TaskOwner = owner
        self.name = name
        self.options = options
        self.is_remote: bool = limits is None
        if limits is None:  # templates are for arguments with their defaults, which only the code knows
            options = replace(options, unique=None, label="")
        self._template = TaskTemplate(owner, name, options, limits)

    def check_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:  # noqa: ARG002 - any names
        """Raises ArgumentError if arguments have no names."""
        if args:
            raise ArgumentError(f"{self.name}: its signature is not known here, so pass its arguments by name")

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        self.check_arguments(args, kwargs)
        return dict(kwargs)

    def decode_result(self, data: bytes) -> Any:
        return decode_untyped_result(data)

    def new_task(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        call_options: AddOptions = NO_OPTIONS,
        flow: Headers = NO_HEADERS,
        uuid: str | None = None,
        links: Links | None = None,
    ) -> NewTask:
        arguments = self.bind(args, kwargs)
        if self.is_remote and call_options.get("unique") is True:
            raise ArgumentError(
                f"{self.name}.options(unique=True): which arguments have defaults is not known without its code, "
                "so two equal calls could differ; give it a key, as in unique='2026-11-16'"
            )
        return new_task(self._template, arguments, call_options, flow=flow, uuid=uuid, links=links)

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
        encode = partial(encode_untyped, known, name=self.name)
        return new_task(self._template, arguments, call_options, encode, flow=flow, uuid=uuid, links=links)

    def store_item(self, name: str, value: object, index: int) -> Raw:
        """A plain element in a list of results."""
        try:
            return store_untyped_item(value, DEFAULT_CAPS.depth)
        except Unstorable as error:
            path = error.path(f"$.{name}[{index}]")
            raise refusal(self.name, f"argument {name!r}", path, error, DEFAULT_CAPS) from None

    def new_task_from(self, task: Task, now: float = 0, *, timed: bool = True) -> NewTask:
        return new_task_from(self._template, task, now, timed=timed)
