"""Any value as plain JSON, for readers that do not know its type. It cannot be read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from onthedot.codec.tagged_json import is_model


def json_value(value: Any) -> Any:
    """The value made of dicts with text keys, lists, texts, numbers, booleans and None. It never raises.

    >>> from datetime import UTC, datetime
    >>> json_value({"when": datetime(2026, 1, 31, tzinfo=UTC), "size": (1, float("nan")), 2: {(3, 4): b"a"}})
    {'when': '2026-01-31T00:00:00Z', 'size': [1, None], '2': {'(3, 4)': 'YQ=='}}
    """
    try:
        return msgspec.json.decode(_encode(value))
    except Exception:  # noqa: BLE001 - a key that JSON has not, a lone surrogate, or a model of the user's that raises
        if isinstance(value, dict):
            return {str(key): json_value(each) for key, each in cast("Mapping[object, object]", value).items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [json_value(each) for each in cast("Iterable[object]", value)]
        return value if isinstance(value, int) else repr(value)


def json_size(value: Any) -> int:
    """About as many bytes as the value takes as JSON. It never raises.

    >>> json_size({"a": [1, 2]}), json_size({(3, 4): None})
    (11, 15)
    """
    try:
        return len(_encode(value))
    except Exception:  # noqa: BLE001 - as above
        return len(repr(value))


def _as_known_type(value: object) -> object:
    if is_model(type(value)):
        return cast("Any", value).model_dump(mode="json")
    return str(value)


_encode = msgspec.json.Encoder(enc_hook=_as_known_type).encode
