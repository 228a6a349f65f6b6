"""A message of a bus as texts: the form in which the task of an event keeps it."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable

from msgspec import Struct

from onthedot.events.bus import BusMessage

_KEY = "key"
_VALUE = "value"


class MessageTexts(Struct, frozen=True, gc=False):
    """The parts of a message. Texts are readable; bytes that are no text are base64.

    headers: in order, if each name occurs once. pairs: instead of them, if a name occurs several times. binary: the
    parts that are base64: "key", "value", or the number of a header.

    >>> texts = texts_of(BusMessage(b"17", b"{}", (("a", b"x"), ("b", b"\\xff"))))
    >>> texts.headers, texts.binary, texts.readable_headers()
    ({'a': 'x', 'b': '/w=='}, ('1',), [('a', 'x'), ('b', '\\\\xff')])
    """

    key: str | None
    value: str
    headers: dict[str, str]
    pairs: tuple[tuple[str, str], ...]
    binary: tuple[str, ...]
    timestamp: int | None

    def message(self) -> BusMessage:
        """The message as it was received, byte by byte."""
        headers = tuple([(name, self._bytes(text, str(number))) for number, (name, text) in enumerate(self._items())])
        key = None if self.key is None else self._bytes(self.key, _KEY)
        return BusMessage(key, self.value_bytes(), headers, self.timestamp)

    def value_bytes(self) -> bytes:
        return self._bytes(self.value, _VALUE)

    def readable_key(self) -> str:
        """Empty: it has none."""
        if self.key and _KEY in self.binary:
            return readable(b64decode(self.key))
        return self.key or ""

    @property
    def is_regular(self) -> bool:
        """All is text, and each name of a header occurs once."""
        return not self.binary and not self.pairs

    def readable_headers(self) -> list[tuple[str, str]]:
        return [(name, self._readable(text, str(number))) for number, (name, text) in enumerate(self._items())]

    def _items(self) -> Iterable[tuple[str, str]]:
        return self.pairs or self.headers.items()

    def _bytes(self, text: str, part: str) -> bytes:
        return b64decode(text) if part in self.binary else text.encode()

    def _readable(self, text: str, part: str) -> str:
        return readable(b64decode(text)) if part in self.binary else text


def texts_of(message: BusMessage) -> MessageTexts:
    """The texts of a message."""
    binary: list[str] = []
    pairs: tuple[tuple[str, str], ...] = ()
    try:
        headers = {name: data.decode() for name, data in message.headers}
    except UnicodeDecodeError:
        found = enumerate(message.headers)
        headers = {name: _text(data, str(number), binary) for number, (name, data) in found}
    if len(headers) != len(message.headers):
        headers = {}
        binary.clear()
        found = enumerate(message.headers)
        pairs = tuple([(name, _text(data, str(number), binary)) for number, (name, data) in found])
    key = None if message.key is None else _text(message.key, _KEY, binary)
    value = _text(message.value, _VALUE, binary)
    return MessageTexts(key, value, headers, pairs, tuple(binary), message.timestamp)


def readable(data: bytes) -> str:
    """A text of any bytes, for reading."""
    return data.decode(errors="backslashreplace")


def _text(data: bytes, part: str, binary: list[str]) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _base64(data, part, binary)


def _base64(data: bytes, part: str, binary: list[str]) -> str:
    binary.append(part)
    return b64encode(data).decode()
