"""Headers of a message as the JSON object that the outbox keeps.

===============================  =====================================================================
header                           written as
===============================  =====================================================================
text                             ``"name": "text"``
bytes that are no text           ``"name;base64": "AAAAAw=="``
several of one name              ``"name": ["first", "second"]``, all in base64 if one is no text
name that begins with ``;``      with one more ``;``
key that is not that of the row  ``";key": "/w=="`` in base64, or null for a message without a key
===============================  =====================================================================

>>> decode_headers(encode_headers([("a", b"x"), ("a", b"y"), ("b", b"\\xff")]))
StoredHeaders(headers=(('a', b'x'), ('a', b'y'), ('b', b'\\xff')), keys=())
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import msgspec

from onthedot.model.stored_keys import stored_text

Headers: TypeAlias = tuple[tuple[str, bytes], ...]

_BASE64 = ";base64"
_KEY = ";key"
_MAX_CACHED = 200  # bytes
_Entry: TypeAlias = str | list[str] | None
_decode = msgspec.json.Decoder(dict[str, _Entry]).decode


class StoredHeaders(NamedTuple):
    """The headers of a row. keys: the key of the message, if it is not that of the row."""

    headers: Headers
    keys: tuple[bytes | None, ...]


def encode_headers(headers: Iterable[tuple[str, bytes]], keys: tuple[bytes | None, ...] = ()) -> bytes:
    """The JSON object of headers. keys: one, if the row cannot have it as a text; else none."""
    entries: dict[str, _Entry] = {}
    for key in keys:
        entries[_KEY] = None if key is None else b64encode(key).decode()
    values: defaultdict[str, list[bytes]] = defaultdict(list)
    for name, value in headers:
        values[name].append(value)
    for name, found in values.items():
        entry, texts = _written(name, found)
        entries[entry] = texts if len(texts) > 1 else texts[0]
    return msgspec.json.encode(entries)


def decode_headers(data: bytes | None) -> StoredHeaders:
    """The headers of a JSON object; those of one name are in order."""
    if not data:
        return StoredHeaders((), ())
    if len(data) <= _MAX_CACHED:  # most events of an app have the same: its source
        return _decode_cached(data)
    return _decode_headers(data)


def _decode_headers(data: bytes) -> StoredHeaders:
    entries = _decode(data)
    keys: list[bytes | None] = []
    if _KEY in entries:
        stored = entries.pop(_KEY)
        keys.append(b64decode(stored) if isinstance(stored, str) else None)
    headers = tuple([_read(entry, text) for entry, texts in entries.items() for text in _several(texts)])
    return StoredHeaders(headers, tuple(keys))


_decode_cached = lru_cache(maxsize=1024)(_decode_headers)


def _as_text(value: bytes) -> str | None:
    """The text of bytes; None if they are none that every store can keep.

    >>> _as_text(b"x"), _as_text(b"\\xff"), _as_text(b"a\\0")
    ('x', None, None)
    """
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    return text


def _written(name: str, values: Sequence[bytes]) -> tuple[str, list[str]]:
    entry = stored_text(name)
    if entry.startswith(";"):
        entry = f";{entry}"
    texts = [text for text in map(_as_text, values) if text is not None]
    if len(texts) == len(values) and not entry.endswith(_BASE64):
        return entry, texts
    return f"{entry}{_BASE64}", [b64encode(value).decode() for value in values]


def _read(entry: str, text: str) -> tuple[str, bytes]:
    name = entry.removesuffix(_BASE64)
    value = text.encode() if name == entry else b64decode(text)
    return name.removeprefix(";"), value


def _several(texts: _Entry) -> list[str]:
    if texts is None:
        return []
    if isinstance(texts, str):
        return [texts]
    return texts
