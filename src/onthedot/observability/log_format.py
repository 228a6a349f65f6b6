"""Log lines of a worker process: for people, or as JSON. Lines written inside a task carry its fields."""

from __future__ import annotations

import contextlib
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from onthedot.model.context import running_task

if TYPE_CHECKING:
    from onthedot import App

_FIELDS = ("uuid", "source", "attempt", "worker", "error_type")
_STYLES = {"WARNING": "33", "ERROR": "31", "CRITICAL": "31"}

Format = Literal["console", "json"]


class TaskFields(logging.Filter):
    """User code's lines, too, say which task they are about."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "uuid"):
            task = running_task()
            if task is not None:
                record.uuid, record.source, record.attempt = task.uuid, task.source, task.attempt
        return True


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class ConsoleFormatter(logging.Formatter):
    def __init__(self, colours: bool) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
        self._colours = colours

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """The line itself says what kind of error it was: of a KeyError the message is but the key."""
        kind = getattr(record, "error_type", "")
        return super().formatMessage(record) + (f" ({kind})" if kind else "")

    def format(self, record: logging.LogRecord) -> str:
        text, style = super().format(record), _STYLES.get(record.levelname)
        return f"\x1b[{style}m{text}\x1b[0m" if self._colours and style else text


def configure(wanted: Format | None, app: App[Any]) -> None:
    """Unless user code has set up logging by itself, or the command line says how it is to be."""
    root = logging.getLogger()
    own = app.runtime.logs.task.logger
    if wanted is None and (root.handlers or own.hasHandlers()):
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if wanted == "json" else ConsoleFormatter(sys.stderr.isatty()))
    handler.addFilter(TaskFields())
    root.handlers = [handler]
    if root.level in (logging.NOTSET, logging.WARNING):
        root.setLevel(logging.INFO)


def say(text: str, wanted: Format | None = None) -> None:
    """A line of the supervisor's own. Nobody may be listening any more, and that must not stop the work."""
    line, to = text, sys.stdout
    if wanted == "json":
        line, to = (
            JsonFormatter().format(logging.LogRecord("onthedot.scheduler", logging.INFO, "", 0, text, None, None)),
            sys.stderr,
        )
    with contextlib.suppress(OSError):
        print(line, file=to, flush=True)
