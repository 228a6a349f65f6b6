"""Log lines of a worker process, for people or as JSON. Lines written inside a task carry its fields.

Text of tasks and stores is cleaned here: it cannot move the cursor of a terminal or pass for a line of ours.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

from onthedot.model.context import running_task
from onthedot.observability.trace_setup import find_current_context

_FIELDS = (
    "uuid", "source", "attempt", "worker", "error_type", "trace_id", "span_id", "request_id", "user",
)  # fmt: skip
_STYLES = {"WARNING": "33", "ERROR": "31", "CRITICAL": "31"}

Format = Literal["console", "json"]


def clean(text: str) -> str:
    """The text on one line, with control characters escaped.

    >>> clean("no order\\n\\x1b[2J 17")
    'no order \\\\x1b[2J 17'
    """
    return _escaped(" ".join(text.split()))


def clean_lines(text: str, indent: str = "") -> str:
    """Each line with control characters escaped. indent: begins all lines but the first."""
    return f"\n{indent}".join([_escaped(line) for line in text.split("\n")])


def clean_json(text: str) -> str:
    """JSON with control characters escaped; the value is the same."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text])


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() or each == "\t" else repr(each)[1:-1] for each in text])


class TaskFields(logging.Filter):
    """Adds the fields of the running task and of the current span to log lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "uuid"):
            task = running_task()
            if task is not None:
                record.uuid = task.uuid
                record.source = task.source
                record.attempt = task.attempt
        if not hasattr(record, "trace_id"):
            context = find_current_context()
            if context is not None:
                record.trace_id = context.trace_id
                record.span_id = context.span_id
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_text:
            line["traceback"] = record.exc_text
        elif record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = self.formatException(record.exc_info)
        line = {name: _encodable(value) for name, value in line.items()}
        return clean_json(msgspec.json.encode(line, enc_hook=lambda value: _encodable(str(value))).decode())


def _encodable(value: Any) -> Any:
    """Lone surrogates, as in names of files, are not JSON."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


class ConsoleFormatter(logging.Formatter):
    """Lines for a terminal."""

    def __init__(self, colours: bool) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
        self._colours = colours

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """Appends the type of the error: the message of a KeyError is only the key."""
        error_type = getattr(record, "error_type", "")
        return super().formatMessage(record) + (f" ({error_type})" if error_type else "")

    def format(self, record: logging.LogRecord) -> str:
        text = clean_lines(super().format(record), indent="  ")
        style = _STYLES.get(record.levelname)
        return f"\x1b[{style}m{text}\x1b[0m" if self._colours and style else text


def configure(wanted: Format | None, level: str | None, logger: logging.Logger) -> None:
    """Sets up logging to stderr. If no format is wanted, a set-up by user code stays.

    level: of the root and of the app's logger; None: as user code has set it, else INFO
    logger: of the app, which user code may have given handlers
    """
    root = logging.getLogger()
    if wanted is not None or not (root.handlers or logger.getChild("task").hasHandlers()):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter() if wanted == "json" else ConsoleFormatter(sys.stderr.isatty()))
        handler.addFilter(TaskFields())
        root.handlers = [handler]
        if root.level in (logging.NOTSET, logging.WARNING):
            root.setLevel(logging.INFO)
    if level is not None:
        root.setLevel(level.upper())
        logger.setLevel(level.upper())


def print_line(text: str, wanted: Format | None = None) -> None:
    """Prints a line of the supervisor. A closed output must not stop the worker."""
    line = text
    stream = sys.stdout
    if wanted == "json":
        record = logging.LogRecord("onthedot.scheduler", logging.INFO, "", 0, text, None, None)
        line = JsonFormatter().format(record)
        stream = sys.stderr
    _write(stream, line)


def print_error(text: str) -> None:
    """Prints why a command cannot go on. A closed output is passed over."""
    _write(sys.stderr, f"onthedot: {text}")


def _write(stream: TextIO, text: str) -> None:
    """Writes the line by one call, because other processes write to the same pipe."""
    with contextlib.suppress(OSError):
        stream.write(f"{text}\n")
        stream.flush()
