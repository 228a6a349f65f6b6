"""A source that is known by name only: its arguments are checked where its code is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from onthedot.codec.untyped import decode_untyped_result
from onthedot.definitions.new_task import NO_OPTIONS, TaskOwner, TaskTemplate, new_task, new_task_from
from onthedot.errors import ArgumentError
from onthedot.model.limits import LimitDefinitions
from onthedot.model.options import AddOptions, ResolvedOptions
from onthedot.model.task import Task
from onthedot.stores.contract import NewTask


class RemoteDefinition:
    """A source without a signature: its code is elsewhere, or it is a consumer of this process.

    limits: of a consumer of this process; None: the code is elsewhere, so the store knows its lanes
    """

    def __init__(
        self, owner: TaskOwner, name: str, options: ResolvedOptions, limits: LimitDefinitions | None = None
    ) -> None:
        self.name = name
        self.options = options
        self.is_remote: bool = limits is None
        if limits is None:  # templates are for arguments with their defaults, which only the code knows
            options = replace(options, unique=None, label="")
        self._template = TaskTemplate(owner, name, options, limits)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if args:
            raise ArgumentError(f"{self.name}: its signature is not known here, so pass its arguments by name")
        return dict(kwargs)

    def decode_result(self, data: bytes) -> Any:
        return decode_untyped_result(data)

    def new_task(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], call_options: AddOptions = NO_OPTIONS
    ) -> NewTask:
        arguments = self.bind(args, kwargs)
        if self.is_remote and call_options.get("unique") is True:
            raise ArgumentError(
                f"{self.name}.options(unique=True): which arguments have defaults is not known without its code, "
                "so two equal calls could differ; give it a key, as in unique='2026-11-16'"
            )
        return new_task(self._template, arguments, call_options)

    def new_task_from(self, task: Task, now: float = 0, *, timed: bool = True) -> NewTask:
        return new_task_from(self._template, task, now, timed=timed)
