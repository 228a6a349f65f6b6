"""A logger that never stops the code that logs."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

from onthedot.model.failures import ExcInfo
from onthedot.model.redaction import default_redaction


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose handlers may fail: a full disk must not stop the tasks."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})
        self._has_complained = False

    def process(self, msg: object, kwargs: MutableMapping[str, Any]) -> tuple[object, MutableMapping[str, Any]]:
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a failing handler is reported once, to stderr
            self._complain(error)

    def error_with_traceback(
        self, msg: str, args: tuple[object, ...], exc_info: ExcInfo | None, text: str, extra: dict[str, object]
    ) -> None:
        """An ERROR with a traceback, of which there may be the text only: it is from another process.

        text: of the traceback; it is written without secrets.
        """
        if not self.isEnabledFor(logging.ERROR):
            return
        try:
            record = self.logger.makeRecord(
                self.logger.name, logging.ERROR, __file__, 0, msg, args, exc_info, extra=extra
            )
            shown = default_redaction().text(text.rstrip("\n"))
            record.exc_text = shown  # handlers print it instead of what they would make of exc_info
            self.logger.handle(record)
        except Exception as error:  # noqa: BLE001 - as above
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._has_complained:
            self._has_complained = True
            sys.stderr.write(f"onthedot: logging to {self.logger.name} fails: {error!r}\n")
