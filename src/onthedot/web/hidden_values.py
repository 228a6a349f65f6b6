"""Values that come back from a form which was filled with redacted ones: what was hidden stays as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from onthedot.codec.plain_json import json_value
from onthedot.model.redaction import HIDDEN, Redaction
from onthedot.web.errors import ApiError


def with_hidden_values(given: Mapping[str, Any], stored: object, redaction: Redaction) -> dict[str, Any]:
    """The arguments of a form, with the stored value where the form still has the text that stands for it.

    ApiError: such a text is where it stands for no stored value, or in an item of a list that was changed.

    >>> with_hidden_values({"to": "cy", "password": "…"}, {"to": "ann", "password": "p"}, Redaction())
    {'to': 'cy', 'password': 'p'}
    """
    plain = json_value(stored)
    shown = json_value(redaction.value(plain).value)
    return cast("dict[str, Any]", _Form(shown, plain).restored(given, shown, plain, "args"))


class _Form:
    """shown: the stored arguments, redacted."""

    def __init__(self, shown: object, stored: object) -> None:
        self._texts = {HIDDEN} | (set(_texts_with_hidden(shown)) - set(_texts_with_hidden(stored)))

    def restored(self, given: object, shown: object, stored: object, path: str) -> object:
        """The value of one path."""
        if _is_same(shown, stored):
            self._check(given, path, self._texts - set(_texts_with_hidden(stored)))
            return given
        if _are(Mapping, given, shown, stored):
            return self._restored_items(
                cast("Mapping[str, object]", given),
                cast("Mapping[str, object]", shown),
                cast("Mapping[str, object]", stored),
                path,
            )
        if _is_same(given, shown):
            return stored
        if _are(list, given, shown, stored):
            return self._restored_list(
                cast("list[object]", given), cast("list[object]", shown), cast("list[object]", stored), path
            )
        if isinstance(given, str) and HIDDEN in given:
            raise _refusal(path)
        self._check(given, path, self._texts)
        return given

    def _restored_items(
        self,
        given: Mapping[str, object],
        shown: Mapping[str, object],
        stored: Mapping[str, object],
        path: str,
    ) -> dict[str, object]:
        return {
            name: self.restored(item, shown.get(name), stored.get(name), f"{path}.{name}")
            for name, item in given.items()
        }

    def _restored_list(self, given: list[object], shown: list[object], stored: list[object], path: str) -> list[object]:
        """Items that moved or were changed are not matched: a secret must not get to another item."""
        found: list[object] = []
        for index, item in enumerate(given):
            if index < len(shown) and _is_same(item, shown[index]):
                found.append(stored[index])
            else:
                self._check(item, f"{path}.{index}", self._texts)
                found.append(item)
        return found

    def _check(self, given: object, path: str, refused: set[str]) -> None:
        if isinstance(given, str) and given in refused:
            raise _refusal(path)
        if isinstance(given, Mapping):
            for name, item in cast("Mapping[str, object]", given).items():
                self._check(item, f"{path}.{name}", refused)
        if isinstance(given, list):
            for index, item in enumerate(cast("list[object]", given)):
                self._check(item, f"{path}.{index}", refused)


def _are(kind: type[object], *values: object) -> bool:
    return all(isinstance(each, kind) for each in values)


def _is_same(one: object, other: object) -> bool:
    """As JSON: true is not 1."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


def _texts_with_hidden(value: object) -> list[str]:
    match value:
        case str():
            return [value] if HIDDEN in value else []
        case dict():
            return [text for item in cast("dict[str, object]", value).values() for text in _texts_with_hidden(item)]
        case list():
            return [text for item in cast("list[object]", value) for text in _texts_with_hidden(item)]
        case _:
            return []


def _refusal(path: str) -> ApiError:
    return ApiError("invalid", f"{path} has {HIDDEN!r} in place of a hidden value: give the value", field=path)
