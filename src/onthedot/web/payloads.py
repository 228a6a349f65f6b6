"""The value of an event as text, without its secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from onthedot.model.redaction import Redaction
from onthedot.web.event_schemas import PayloadText

_MAX_TEXT = 32_768  # characters
_MAX_JSON = 4_194_304  # bytes that are decoded


def payload_text(value: bytes, headers: Iterable[tuple[str, bytes]], redaction: Redaction) -> PayloadText:
    """JSON is indented; its numbers are as in the event, which a browser could not keep."""
    text = _redacted(value, redaction)
    shown = {name: data.decode(errors="backslashreplace") for name, data in headers}
    hidden = cast("Mapping[str, object]", redaction.value(shown).value)
    return PayloadText(
        text=text[:_MAX_TEXT],
        size=len(value),
        cut=len(text) > _MAX_TEXT,
        headers={name: str(each) for name, each in hidden.items()},
    )


def _redacted(value: bytes, redaction: Redaction) -> str:
    if len(value) <= _MAX_JSON:
        try:
            decoded = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return msgspec.json.format(msgspec.json.encode(redaction.value(decoded).value), indent=2).decode()
    return redaction.text(value[:_MAX_JSON].decode(errors="backslashreplace"))
