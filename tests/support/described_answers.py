"""Answers of the HTTP API are those that `docs/openapi.json` describes: status, media type, and every field."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from tests.support.http_client import Answer

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"
_FORMATS = FormatChecker(())
_ANY_METHOD = (405,)  # for methods that are not described


@_FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


class Description:
    """The committed description. Objects have no other fields than it names."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self.paths: Mapping[str, Any] = described["paths"]
        self._patterns = [(re.compile(_pattern(path)), path) for path in self.paths]
        self._patterns.sort(key=lambda each: (each[1].count("{"), -len(each[1])))  # without parameters first
        self._components = {"components": {"schemas": _closed(described["components"]["schemas"])}}
        for schema in described["components"]["schemas"].values():
            Draft202012Validator.check_schema(schema)

    def path_of(self, path: str) -> str | None:
        """The described path that a path is of; None: it is none of the API."""
        found = [described for pattern, described in self._patterns if pattern.fullmatch(path)]
        return found[0] if found else None

    def check(self, method: str, path: str, answer: Answer) -> None:
        """AssertionError: the answer is not described, or does not match its schema. path: without a prefix."""
        described = self.path_of(path)
        if described is None:
            return
        operation = self.paths[described].get("get" if method == "HEAD" else method.lower())
        what = f"{method} {path}: {answer.status}"
        if operation is None:
            assert answer.status in (*_ANY_METHOD, 401, 421), f"{what} of a method that is not described"
            self._check_body(what, {"$ref": "#/components/schemas/ErrorAnswer"}, answer, method)
            return
        responses = operation["responses"]
        assert str(answer.status) in responses, f"{what} is not described, but {', '.join(responses)}: {answer.body!r}"
        content = responses[str(answer.status)].get("content")
        if content is None:
            assert answer.body == b"", f"{what} has a body: {answer.body!r}"
            return
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        assert media_type in content, f"{what} is {media_type}, and not {', '.join(content)}"
        if media_type == "application/json":
            self._check_body(what, content[media_type].get("schema", {}), answer, method)

    def _check_body(self, what: str, schema: Mapping[str, Any], answer: Answer, method: str) -> None:
        if method == "HEAD":
            return
        value = json.loads(answer.body)
        validator = Draft202012Validator({**self._components, **schema}, format_checker=_FORMATS)
        problems = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]
        assert not problems, f"{what} does not match its schema:\n" + "\n".join(problems)


def _pattern(path: str) -> str:
    """Names of sources and schedules may have a slash."""
    return re.sub(r"\{(\w+)\}", lambda found: ".+" if found[1] == "name" else "[^/]+", path)


def _closed(schema: Any) -> Any:
    """The schema; objects with properties have no others."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _closed(each) for name, each in schema.items()}
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


@cache
def description() -> Description:
    return Description(json.loads(FILE.read_text("utf-8")))


def check_answer(method: str, target: str, answer: Answer) -> None:
    """target: the path of a request, with a prefix and a query."""
    path = target.partition("?")[0]
    _, api, below = path.partition("/api/v1")
    description().check(method, api + below if api else path, answer)
