"""Payloads as viewers see them: no secret of any form, and with work that does not grow with the payload."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onthedot.model.redaction import Redaction
from onthedot.web.event_schemas import PayloadText
from onthedot.web.payloads import payload_text

SECRET = "hunter2"
NESTED: dict[str, Any] = {"password": ["a ] b", SECRET], "secret": {"value": [SECRET]}, "id": 7}
DOCUMENT = json.dumps(NESTED, indent=1).encode()


def shown(value: bytes) -> PayloadText:
    return payload_text(value, [("x-shop", b"eu")], Redaction())


@pytest.mark.parametrize(
    "value",
    [
        json.dumps({**NESTED, "more": "x" * 4_300_000}).encode(),
        b"\n".join([json.dumps(NESTED).encode()] * 3),
        b"\n".join([json.dumps(NESTED).encode()] * 2000),
        DOCUMENT[: DOCUMENT.rindex(b"]") - 2],
        b"log: " + DOCUMENT,
        json.dumps({"body": DOCUMENT.decode()}).encode(),
        b"log: " + json.dumps(DOCUMENT.decode()).encode(),
        f"failed with {NESTED}".encode(),
        f"password=SecretStr('{SECRET}') token=('a', '{SECRET}')".encode(),
        f'{{"password": "a\\"{SECRET}", "token": "{SECRET} {SECRET}'.encode(),
        b"x" * 65_520 + f" redis://ann:{SECRET}{SECRET}@cache".encode(),
        b"[" * 5000 + DOCUMENT,
    ],
    ids=[
        "large",
        "lines",
        "many lines",
        "torn",
        "prefix",
        "text in JSON",
        "JSON in text",
        "repr",
        "calls",
        "quotes",
        "cut",
        "deep",
    ],
)
def test_nested_secrets_are_hidden_in_any_payload(value: bytes) -> None:
    found = shown(value)
    assert SECRET not in found.text
    assert (found.size, found.headers) == (len(value), {"x-shop": "eu"})


def test_json_lines_are_shown_line_by_line() -> None:
    found = shown(b'{"id": 1, "token": {"a": 1}}\n\n{"id": 9007199254740993}\n')
    assert (found.text, found.cut) == ('{"id":1,"token":"…"}\n{"id":9007199254740993}', False)


def test_text_behind_a_hidden_value_is_shown() -> None:
    text = '"password": ["a", {"b": "]"}], "id": 7'
    assert shown(text.encode()).text == '"password": …, "id": 7'


class CountingRedaction(Redaction):
    """Counts the characters that it looks through."""

    looked_at = 0

    def text(self, text: str) -> str:
        self.looked_at += len(text)
        return super().text(text)


@pytest.mark.parametrize("value", [b"x=1 password=a " * 200_000, json.dumps(["password=a b"] * 200_000).encode()])
def test_only_what_can_be_shown_is_redacted(value: bytes) -> None:
    redaction = CountingRedaction()
    found = payload_text(value, [], redaction)
    assert (found.cut, len(found.text)) == (True, 32_768)
    assert redaction.looked_at <= 65_536
