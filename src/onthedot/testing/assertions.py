"""What has been added, and what has become of it: for assertions and their messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from inspect import Parameter, signature
from typing import Any

from onthedot.api.functions import Enqueuer, ScheduledFunction
from onthedot.client.client import StoreClient
from onthedot.clock.epoch import from_ms
from onthedot.definitions.consumers import BaseTaskConsumer
from onthedot.definitions.functions import FunctionDefinition
from onthedot.definitions.remote import RemoteDefinition
from onthedot.errors import ArgumentError
from onthedot.model.task import TaskInfo, TaskState
from onthedot.model.task_info import task_info
from onthedot.runtime.runtime import Runtime
from onthedot.stores.contract import Note, Record

_SHOWN = 20  # tasks in a message


class AddedTasks:
    """The tasks in an app's store, with their arguments as the functions get them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def all(self, source: str | None = None) -> list[TaskInfo]:
        """In the order of adding."""
        infos = self._runtime.portal.run_sync(self._read)
        return [info for info in infos if source in (None, info.source)]

    def like(self, source: str, wanted: Mapping[str, Any]) -> list[TaskInfo]:
        """Those with these arguments, whatever the others are. Defaults count as given."""
        parameters = self._parameters(source)
        unknown = wanted.keys() - parameters.keys() if parameters else ()
        if unknown and not any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
            # A misspelt name would make refute_added() right about anything.
            raise ArgumentError(f"{source}() has no parameter {', '.join(unknown)}; it has {', '.join(parameters)}")
        defaults = {name: each.default for name, each in parameters.items() if each.default is not Parameter.empty}
        return [info for info in self.all(source) if _has({**defaults, **info.args}, wanted)]

    def source(self, task: object) -> str:
        """The name behind a function, a consumer, an alias."""
        definition = task.definition if isinstance(task, Enqueuer | ScheduledFunction) else None
        if isinstance(definition, RemoteDefinition):
            return definition.name
        if definition is not None:
            known: object = self._runtime.sources.get(definition.name)
            if known is not definition:
                raise ValueError(f"{task!r} is of another app than {self._runtime.name!r}")
            return definition.name
        name = task.name if isinstance(task, BaseTaskConsumer) else task
        if not isinstance(name, str):
            raise TypeError(f"pass a task function, a consumer or a name, not {task!r}")
        source = self._runtime.sources.get(name)
        return name if source is None else source.name

    def told(self, source: str) -> str:
        """What there is, to be read by somebody who expected something else."""
        every = self.all()
        infos = [info for info in every if info.source == source]
        others = Counter(info.source for info in every if info.source != source)
        now = _moment(from_ms(self._runtime.clock.now()))
        lines = [f"at {now} there is of {source}:" if infos else f"there is no {source}"]
        lines += [f"  {shown(source, info.args)} {_fate(info)}" for info in infos[-_SHOWN:]]
        if len(infos) > _SHOWN:
            lines.append(f"  and {len(infos) - _SHOWN} older")
        if others:
            lines.append("others: " + ", ".join(f"{count} {name}" for name, count in others.items()))
        return "\n".join(lines)

    def _parameters(self, source: str) -> Mapping[str, Parameter]:
        declared = self._runtime.sources.get(source)
        return signature(declared.function).parameters if isinstance(declared, FunctionDefinition) else {}

    async def _read(self, client: StoreClient) -> list[TaskInfo]:
        infos: list[TaskInfo] = []
        cursor: str | None = None
        while True:
            page = await client.store.find({}, cursor, 1000)
            infos += [self._info(record, await client.store.notes(record.uuid, 0, 1000)) for record in page.rows]
            cursor = page.after
            if cursor is None:
                return infos[::-1]

    def _info(self, record: Record, notes: Sequence[tuple[int, Note]]) -> TaskInfo:
        info = task_info(record, [note for _, note in notes])
        declared = self._runtime.sources.get(record.source)
        if not isinstance(declared, FunctionDefinition):
            return info
        try:
            args: dict[str, Any] = dict(declared.codec.decode(record.body)[0])
        except ValueError:
            return info
        for name, parameter in self._parameters(record.source).items():
            if parameter.kind is Parameter.VAR_KEYWORD:
                args |= args.pop(name, {})
        return replace(info, args=args)


def shown(source: str, args: Mapping[str, Any]) -> str:
    """A call, as it is written.

    >>> shown("send", {"to": "ann", "copies": 2})
    "send(to='ann', copies=2)"
    """
    return f"{source}({', '.join(f'{name}={_short(repr(value))}' for name, value in args.items())})"


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:150]}…{text[-40:]}"


def _has(args: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in args and bool(value == args[name]) for name, value in wanted.items())


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "milliseconds").removesuffix(".000")


def _fate(info: TaskInfo) -> str:
    match info.state:
        case TaskState.SCHEDULED:
            return f"scheduled for {_moment(info.schedule_at)}"
        case TaskState.FAILED if info.error is not None:
            return f"failed: {info.error.type}: {info.error.message}"
        case TaskState.CANCELLED:
            return f"cancelled: {info.reason}"
        case _:
            return str(info.state)
