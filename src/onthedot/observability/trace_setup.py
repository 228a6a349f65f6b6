"""Finds out whether this program traces. OpenTelemetry is not imported for it: a program that traces has done so."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Literal, TypeAlias

from onthedot.errors import DeclarationError
from onthedot.model.traces import TraceContext

if TYPE_CHECKING:
    from onthedot.observability.spans import Tracing

TraceMode: TypeAlias = Literal["link", "parent", "off"]
_API = "opentelemetry.trace"


def trace_mode() -> TraceMode:
    """``$ONTHEDOT_TRACE``: how the span of a run is connected with that of the add; "off": there are no spans."""
    mode = os.environ.get("ONTHEDOT_TRACE") or "link"
    match mode:
        case "link" | "parent" | "off":
            return mode
        case _:
            raise DeclarationError(f"ONTHEDOT_TRACE is link, parent or off, not {mode!r}")


def find_tracing(version: str, log: logging.LoggerAdapter[logging.Logger]) -> Tracing | None:
    """None: the program has no tracer provider, or wants no spans of tasks. version: of this package."""
    mode = trace_mode()
    if mode == "off" or _API not in sys.modules:
        return None
    from onthedot.observability.spans import Tracing, is_set_up

    return Tracing(version, log, runs_in_trace=mode == "parent") if is_set_up() else None


def find_current_context() -> TraceContext | None:
    """The span of the code that calls; None: there is none."""
    if _API not in sys.modules:
        return None
    from onthedot.observability.spans import current_context

    return current_context()
