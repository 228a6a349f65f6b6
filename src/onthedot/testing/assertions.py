"""The tasks of a test, for assertions and their messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from inspect import Parameter, signature
from typing import Any

from onthedot.client.client import StoreClient
from onthedot.clock.epoch import from_ms
from onthedot.definitions.consumers import BaseTaskConsumer
from onthedot.definitions.functions import FunctionDefinition
from onthedot.definitions.remote import RemoteDefinition
from onthedot.errors import ArgumentError
from onthedot.model.task import TaskInfo, TaskState
from onthedot.model.task_info import task_info
from onthedot.operations.task_queries import find_pages
from onthedot.runtime.runtime import Runtime
from onthedot.stores.contract import Note, Record

_SHOWN = 20  # tasks in a message


class AddedTasks:
    """The tasks in an app's store, with their arguments as the functions get them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def all(self, source: str | None = None) -> list[TaskInfo]:
        """Returns tasks in the order of adding."""
        infos = self._runtime.portal.run_sync(self._read)
        return [info for info in infos if source in (None, info.source)]

    def matching(self, source: str, wanted: Mapping[str, Any]) -> list[TaskInfo]:
        """Returns the tasks with these arguments, whatever their others are. Defaults count as given."""
        parameters = self._parameters(source)
        unknown = wanted.keys() - parameters.keys()
        takes_any = not parameters or any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
        if unknown and not takes_any:
            # With a misspelt name, refute_added() would always pass.
            raise ArgumentError(f"{source}() has no parameter {', '.join(unknown)}; it has {', '.join(parameters)}")
        defaults = {name: each.default for name, each in parameters.items() if each.default is not Parameter.empty}
        return [info for info in self.all(source) if _has({**defaults, **info.args}, wanted)]

    def source(self, task: object) -> str:
        """Returns the source of a function, a consumer or an alias."""
        definition: object = getattr(task, "definition", None)
        if isinstance(definition, RemoteDefinition):
            return definition.name
        if isinstance(definition, FunctionDefinition):
            known: object = self._runtime.sources.get(definition.name)
            if known is not definition:
                raise ValueError(f"{task!r} is of another app than {self._runtime.name!r}")
            return definition.name
        name = task.name if isinstance(task, BaseTaskConsumer) else task
        if not isinstance(name, str):
            raise TypeError(f"pass a task function, a consumer or a name, not {task!r}")
        source = self._runtime.sources.get(name)
        if source is None:
            return name
        return source.name

    def describe(self, source: str) -> str:
        """Describes the tasks there are, for the message of a failed assertion."""
        every = self.all()
        infos = [info for info in every if info.source == source]
        others = Counter(info.source for info in every if info.source != source)
        now = _moment(from_ms(self._runtime.clock.now()))
        lines = [f"at {now} there is of {source}:" if infos else f"there is no {source}"]
        lines += [f"  {call_text(source, info.args)} {_state_text(info)}" for info in infos[-_SHOWN:]]
        if len(infos) > _SHOWN:
            lines.append(f"  and {len(infos) - _SHOWN} older")
        if others:
            lines.append("others: " + ", ".join(f"{count} {name}" for name, count in others.items()))
        return "\n".join(lines)

    def _parameters(self, source: str) -> Mapping[str, Parameter]:
        definition = self._runtime.sources.get(source)
        if not isinstance(definition, FunctionDefinition):
            return {}
        return signature(definition.function).parameters

    async def _read(self, client: StoreClient) -> list[TaskInfo]:
        store = client.store
        infos: list[TaskInfo] = []
        async for records in find_pages(store, {}, 1000):
            infos += [self._info(record, await store.notes(record.uuid, 0, 1000)) for record in records]
        return infos[::-1]

    def _info(self, record: Record, notes: Sequence[tuple[int, Note]]) -> TaskInfo:
        info = task_info(record, [note for _, note in notes], self._runtime.result_decoder(record.source))
        definition = self._runtime.sources.get(record.source)
        if not isinstance(definition, FunctionDefinition):
            return info
        try:
            args: dict[str, Any] = dict(definition.codec.decode(record.body)[0])
        except ValueError:
            return info
        for name, parameter in self._parameters(record.source).items():
            if parameter.kind is Parameter.VAR_KEYWORD:
                args |= args.pop(name, {})
        return replace(info, args=args)


def call_text(source: str, args: Mapping[str, Any]) -> str:
    """A call as it is written in code.

    >>> call_text("send", {"to": "ann", "copies": 2})
    "send(to='ann', copies=2)"
    """
    return f"{source}({', '.join(f'{name}={_short(repr(value))}' for name, value in args.items())})"


def _short(text: str) -> str:
    if len(text) > 200:
        return f"{text[:150]}…{text[-40:]}"
    return text


def _has(args: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in args and bool(value == args[name]) for name, value in wanted.items())


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "milliseconds").removesuffix(".000")


def _state_text(info: TaskInfo) -> str:
    match info.state:
        case TaskState.SCHEDULED:
            return f"scheduled for {_moment(info.schedule_at)}"
        case TaskState.FAILED if info.error is not None:
            return f"failed: {info.error.type}: {info.error.message}"
        case TaskState.CANCELLED:
            return f"cancelled: {info.reason}"
        case _:
            return str(info.state)
