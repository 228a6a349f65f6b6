"""Traces as the engine and the client see them. `observability/spans.py` makes spans, if OpenTelemetry is set up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from onthedot.codec.body import add_trace
from onthedot.stores.contract import NewTask, Outcome

if TYPE_CHECKING:
    from onthedot.model.context import RunState

PARENT_HEADER = "traceparent"
STATE_HEADER = "tracestate"
_MAX_STATE = 512  # characters; W3C lets programs drop what is longer
_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class TraceContext(NamedTuple):
    """A span for others that continue its trace, as W3C Trace Context writes it."""

    parent: str  # version, trace, span, flags
    state: str = ""

    @property
    def trace_id(self) -> str:
        return self.parent.split("-")[1]

    @property
    def span_id(self) -> str:
        return self.parent.split("-")[2]

    @property
    def headers(self) -> dict[str, str]:
        """As headers of a message."""
        state = {STATE_HEADER: self.state} if self.state else {}
        return {PARENT_HEADER: self.parent, **state}

    def pass_on(self, tasks: Sequence[NewTask]) -> tuple[NewTask, ...]:
        """The tasks, whose runs continue the trace."""
        return tuple([replace(task, body=add_trace(task.body, self.parent, self.state)) for task in tasks])


class ParentFields(NamedTuple):
    """Hexadecimal numbers."""

    trace_id: str
    span_id: str
    flags: str


def parse_parent(text: str) -> ParentFields | None:
    """Reads what a task stores, which any program may have written. None: it names no span."""
    found = _PARENT.fullmatch(text)
    if found is None:
        return None
    fields = ParentFields(*found.groups())
    return fields if int(fields.trace_id, 16) and int(fields.span_id, 16) else None


def trace_of_headers(headers: Mapping[str, str]) -> TraceContext | None:
    """The span that a message names, which any program may have written. None: it names none.

    headers: with names in lower case

    >>> trace_of_headers({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}).span_id
    'b7ad6b7169203331'
    >>> trace_of_headers({"traceparent": "00-0"}) is None
    True
    """
    parent = headers.get(PARENT_HEADER, "")
    if parse_parent(parent) is None:
        return None
    state = headers.get(STATE_HEADER, "")
    return TraceContext(parent, state if len(state) <= _MAX_STATE else "")


class RunSpan(Protocol):
    """The span of a run. It is current while the function runs. None of its methods raises."""

    context: TraceContext

    def leave(self) -> None:
        """The function has returned. Called where the span was made."""
        ...

    def end(self, outcome: Outcome) -> None:
        """The outcome is known. Later calls have no effect."""
        ...


class SendSpan(Protocol):
    """The span of an add, which was begun before it. One that is not ended is not exported. `end` never raises."""

    tasks: Sequence[NewTask]
    """The tasks that are to be added: they name the span."""

    def end(self, error: BaseException | None = None) -> None:
        """The tasks are stored, or could not be."""
        ...


class TaskTracer(Protocol):
    """Makes spans. None of its methods raises, whatever the program has set up."""

    def begin_run(self, run: RunState) -> RunSpan:
        """Makes the span of a run whose body is decoded, and makes it current."""
        ...

    def begin_send(self, tasks: Sequence[NewTask]) -> SendSpan:
        """Makes one span for these tasks, below the current one."""
        ...

    def begin_window(self, schedule: str, tasks: Sequence[NewTask]) -> SendSpan:
        """The same for the tasks of a schedule, which begins a trace."""
        ...

    def current(self) -> TraceContext | None:
        """The span of the code that calls; None: there is none."""
        ...

    def enter(self, context: TraceContext) -> None:
        """Makes a span of another process current, for the rest of this context."""
        ...


def with_trace(tasks: Sequence[NewTask], tracer: TaskTracer | None) -> Sequence[NewTask]:
    """Tasks that are added in the caller's transaction; their span ends when they are written, before the commit."""
    if tracer is None:
        return tasks
    span = tracer.begin_send(tasks)
    span.end()
    return span.tasks
