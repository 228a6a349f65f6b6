"""Spans of OpenTelemetry: one per add, one per run, and one per slow or failed turn. The only importer of its API."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from opentelemetry import context as contexts, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from onthedot.model.context import RunState
from onthedot.model.failures import decode_failure
from onthedot.model.redaction import default_redaction
from onthedot.model.traces import RunSpan, SendSpan, TraceContext, parse_parent
from onthedot.observability import span_attributes as attributes
from onthedot.observability.events import Observer
from onthedot.stores.contract import Completed, Ended, NewTask, Outcome, Suspended

T = TypeVar("T")
_TURN = "the loop"  # what `store_failed` calls it
_NO_CONTEXT = TraceContext(f"00-{'0' * 32}-{'0' * 16}-00")


class Tracing(Observer):
    """Makes spans by the tracer provider of the program. If that raises, it is switched off after one ERROR.

    version: of this package; runs_in_trace: the span of a run is a child of the span that has added its task, and not
    only linked to it; provider: None: that of the program
    """

    def __init__(
        self,
        version: str,
        log: logging.LoggerAdapter[logging.Logger],
        *,
        runs_in_trace: bool,
        provider: trace.TracerProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("onthedot", version, provider)
        self._runs_in_trace = runs_in_trace
        self._redaction = default_redaction()
        self._switch = _Switch(log)

    # -- adds

    def begin_send(self, tasks: Sequence[NewTask]) -> SendSpan:
        none: SendSpan = _NoSendSpan(tasks)
        return self._switch.attempt(lambda: self._send(tasks, "", None), none)

    def begin_window(self, schedule: str, tasks: Sequence[NewTask]) -> SendSpan:
        none: SendSpan = _NoSendSpan(tasks)
        return self._switch.attempt(lambda: self._send(tasks, schedule, Context()), none)

    def _send(self, tasks: Sequence[NewTask], schedule: str, parent: Context | None) -> SendSpan:
        name = f"send {attributes.destination_of(tasks)}".rstrip()
        span = self._tracer.start_span(name, parent, SpanKind.PRODUCER, attributes.of_send(tasks, schedule))
        return _SendSpan(span, tasks, self._switch)

    # -- runs

    def begin_run(self, run: RunState) -> RunSpan:
        return self._switch.attempt(lambda: self._run(run), _NO_RUN)

    def _run(self, run: RunState) -> RunSpan:
        parent = Context()
        links: list[Link] = []
        producer = read_context(TraceContext(run.headers.trace, run.headers.trace_state))
        if producer is not None and self._runs_in_trace:
            parent = trace.set_span_in_context(NonRecordingSpan(producer), parent)
        elif producer is not None:
            links.append(Link(producer))
        span = self._tracer.start_span(
            f"process {run.record.source}", parent, SpanKind.CONSUMER, attributes.of_run(run), links
        )
        return _RunSpan(span, parent, self._describe, self._switch)

    def _describe(self, span: Span, outcome: Outcome) -> None:
        """The state, and the error once: as it is stored, so without secrets and also from other processes."""
        if not span.is_recording():
            return
        span.set_attribute(attributes.STATE, attributes.state_after(outcome))
        if isinstance(outcome, Completed | Suspended) or attributes.state_after(outcome) == "cancelled":
            return
        failure = decode_failure(outcome.error)
        if failure is None:
            return
        message = self._redaction.text(failure.message)
        values = {attributes.EXCEPTION_TYPE: failure.type, attributes.EXCEPTION_MESSAGE: message}
        if failure.traceback:
            values[attributes.EXCEPTION_STACKTRACE] = self._redaction.text(failure.traceback)
        span.add_event("exception", values)
        if isinstance(outcome, Ended):
            span.set_status(Status(StatusCode.ERROR, f"{failure.type}: {message}"))

    def current(self) -> TraceContext | None:
        return self._switch.attempt(current_context, None)

    def enter(self, context: TraceContext) -> None:
        self._switch.attempt(lambda: _enter(context), None)

    # -- the store

    def store_slow(self, operation: str, ms: float) -> None:  # noqa: ARG002 - of the observer
        span = self._begin_settle(ms)
        span.end()

    def store_failed(self, operation: str, error: BaseException) -> None:
        if operation != _TURN:
            return
        span = self._begin_settle(0)
        message = self._redaction.text(str(error))
        kind = type(error).__qualname__
        span.add_event("exception", {attributes.EXCEPTION_TYPE: kind, attributes.EXCEPTION_MESSAGE: message})
        span.set_status(Status(StatusCode.ERROR, f"{kind}: {message}"))
        span.end()

    def _begin_settle(self, ms: float) -> Span:
        began = time.time_ns() - int(ms * 1_000_000)
        return self._tracer.start_span("settle", Context(), SpanKind.INTERNAL, attributes.of_settle(), start_time=began)


class _Switch:
    """Whether spans are made. An error of the provider, or of a span processor of the program, turns it off for good.

    Tracing never ends a task and never fails an add: whatever calls code of the program goes through here.
    """

    def __init__(self, log: logging.LoggerAdapter[logging.Logger]) -> None:
        self._log = log
        self._is_on = True

    def attempt(self, call: Callable[[], T], otherwise: T) -> T:
        if not self._is_on:
            return otherwise
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - as above
            self._is_on = False
            self._log.error("tracing is switched off: %s", error, exc_info=error)
            return otherwise


class _SendSpan:
    def __init__(self, span: Span, tasks: Sequence[NewTask], switch: _Switch) -> None:
        self._span = span
        self._switch = switch
        self.tasks: Sequence[NewTask] = write_context(span).pass_on(tasks)

    def end(self, error: BaseException | None = None) -> None:
        self._switch.attempt(lambda: self._end(error), None)

    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            text = default_redaction().text(str(error))
            self._span.set_status(Status(StatusCode.ERROR, f"{type(error).__qualname__}: {text}"))
        self._span.end()


class _RunSpan:
    def __init__(self, span: Span, parent: Context, describe: Callable[[Span, Outcome], None], switch: _Switch) -> None:
        self._span = span
        self._describe = describe
        self._switch = switch
        self._has_ended = False
        self.context: TraceContext = write_context(span)
        self._token = contexts.attach(trace.set_span_in_context(span, parent))

    def leave(self) -> None:
        contexts.detach(self._token)  # logs an error and never raises; also after tracing was switched off

    def end(self, outcome: Outcome) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._switch.attempt(lambda: self._end(outcome), None)

    def _end(self, outcome: Outcome) -> None:
        self._describe(self._span, outcome)
        self._span.end()


class _NoSendSpan:
    def __init__(self, tasks: Sequence[NewTask]) -> None:
        self.tasks: Sequence[NewTask] = tasks

    def end(self, error: BaseException | None = None) -> None: ...


class _NoRunSpan:
    context: TraceContext = _NO_CONTEXT

    def leave(self) -> None: ...

    def end(self, outcome: Outcome) -> None: ...


_NO_RUN: RunSpan = _NoRunSpan()


def write_context(span: Span) -> TraceContext:
    own = span.get_span_context()
    parent = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"
    return TraceContext(parent, own.trace_state.to_header())


def read_context(context: TraceContext) -> SpanContext | None:
    """None: it names no span."""
    found = parse_parent(context.parent)
    if found is None:
        return None
    state = TraceState.from_header([context.state]) if context.state else None
    return SpanContext(int(found.trace_id, 16), int(found.span_id, 16), True, TraceFlags(int(found.flags, 16)), state)


def _enter(context: TraceContext) -> None:
    own = read_context(context)
    if own is not None:
        contexts.attach(trace.set_span_in_context(NonRecordingSpan(own), Context()))


def is_set_up() -> bool:
    """Whether the program has chosen a tracer provider; without one, spans are recorded nowhere."""
    provider = trace.get_tracer_provider()
    return not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def current_context() -> TraceContext | None:
    span = trace.get_current_span()
    return write_context(span) if span.get_span_context().is_valid else None
