"""The value of an event as text, without its secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from onthedot.model.redaction import Redaction, cut_text
from onthedot.web.event_schemas import PayloadText

_MAX_TEXT = 32_768  # characters
_MAX_REDACTED = 2 * _MAX_TEXT  # characters: hidden secrets can make it shorter
_MAX_DECODED = 4_194_304  # bytes
_BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def payload_text(value: bytes, headers: Iterable[tuple[str, bytes]], redaction: Redaction) -> PayloadText:
    """JSON is indented; its numbers are as in the event, which a browser could not keep.

    Only what can be shown is redacted: the time does not grow with the number of texts in the event.
    """
    text = ""
    is_cut = True
    if len(value) <= _MAX_DECODED:
        text, is_cut = _redacted(value, redaction)
    else:  # a secret is found by its name, and the name can be far before it
        text = f"not shown: {len(value):,} bytes; secrets are looked for in at most {_MAX_DECODED:,}"
    shown = {name: data[:_MAX_REDACTED].decode(errors="backslashreplace") for name, data in headers}
    hidden = cast("Mapping[str, object]", redaction.value(_Beginning().of(shown)).value)
    return PayloadText(
        text=text[:_MAX_TEXT],
        size=len(value),
        cut=is_cut or len(text) > _MAX_TEXT,
        headers={name: str(each) for name, each in hidden.items()},
    )


def _redacted(value: bytes, redaction: Redaction) -> tuple[str, bool]:
    """The text, and whether its end is missing."""
    try:
        document, is_cut = _redacted_json(value, redaction)
        return msgspec.json.format(document, indent=2).decode(), is_cut
    except _BAD_JSON:
        pass
    try:
        return _redacted_lines(value, redaction)
    except _BAD_JSON:
        pass
    text = value[: 2 * _MAX_REDACTED].decode(errors="backslashreplace")
    return redaction.beginning(text, _MAX_TEXT), len(text) > _MAX_TEXT


def _redacted_json(value: bytes, redaction: Redaction) -> tuple[bytes, bool]:
    beginning = _Beginning()
    decoded = beginning.of(msgspec.json.decode(value))
    return msgspec.json.encode(redaction.value(decoded).value), beginning.is_cut


def _redacted_lines(value: bytes, redaction: Redaction) -> tuple[str, bool]:
    """JSON Lines: every line is a document."""
    shown: list[str] = []
    size = 0
    for line in filter(bytes.strip, value.splitlines()):
        if size > _MAX_TEXT:
            return "\n".join(shown), True
        document, is_cut = _redacted_json(line, redaction)
        shown.append(document.decode())
        size += len(shown[-1])
        if is_cut:
            return "\n".join(shown), True
    return "\n".join(shown), False


class _Beginning:
    """Copies the beginning of decoded JSON."""

    def __init__(self) -> None:
        self._left = _MAX_REDACTED  # characters

    @property
    def is_cut(self) -> bool:
        return self._left < 0

    def of(self, value: object) -> object:
        self._left -= 1
        if isinstance(value, str):
            allowed = max(0, self._left)
            self._left -= len(value)
            return value if self._left >= 0 else cut_text(value, allowed)
        if isinstance(value, dict):
            found: dict[str, object] = {}
            for key, item in cast("dict[str, object]", value).items():
                if self._left < 0:
                    break
                self._left -= len(key)
                found[key] = self.of(item)
            return found
        if isinstance(value, list):
            items: list[object] = []
            for item in cast("list[object]", value):
                if self._left < 0:
                    break
                items.append(self.of(item))
            return items
        return value
