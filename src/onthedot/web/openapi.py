"""OpenAPI 3.1, from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onthedot.web.endpoints import Route
from onthedot.web.errors import STATUSES
from onthedot.web.schemas import ErrorAnswer

_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")
_EVERY_ROUTE = ("bad_request", "too_large", "wrong_host", "internal", "store_unavailable")
_WITH_BODY = ("unsupported_type", "invalid")
_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}


def openapi(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The description of these routes. version: of the package."""
    kinds = [
        kind
        for route in routes
        for kind in (route.answer, *route.other_answers.values(), route.body)
        if kind is not None
    ]
    schemas, components = msgspec.json.schema_components(
        [*kinds, ErrorAnswer], ref_template="#/components/schemas/{name}"
    )
    refs = {id(kind): schema for kind, schema in zip([*kinds, ErrorAnswer], schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.full_path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "onthedot", "version": version},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "onthedot_8123"},
            },
        },
    }


def _operation(route: Route, refs: Mapping[int, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.handler.__name__ if "{name}/plan" not in route.path else "show_schedule_plan",
        "summary": route.summary,
        "x-role": route.access,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": _responses(route, refs),
    }
    if route.access != "open":
        found["security"] = [{"token": []}, {"cookie": []}]
    if route.body is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": refs[id(route.body)]}}}
    return found


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([route.query], ref_template="#/{name}")
    (schema,) = components.values()
    found: list[dict[str, Any]] = []
    for name, each in {"app": {"type": "string", "default": ""}, **schema["properties"]}.items():
        parameter: dict[str, Any] = {"name": name, "in": "query", "required": False, "schema": each}
        if each.get("type") == "array":
            parameter |= {"style": "form", "explode": True}
        found.append(parameter)
    return found


def _responses(route: Route, refs: Mapping[int, Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "success"}
    if route.answer is not None:
        success["content"] = {route.media_type: {"schema": refs[id(route.answer)]}}
    elif route.status != 204:
        success["content"] = {route.media_type: {}}
    responses = {str(route.status): success}
    for status, kind in route.other_answers.items():
        content = {route.media_type: {"schema": refs[id(kind)]}}
        responses[str(status)] = {"description": "success", "content": content}
    if route.has_etag:
        responses["304"] = {"description": "not changed since the ETag of If-None-Match"}
    codes = {*_EVERY_ROUTE, *route.errors}
    if route.access != "open":
        codes |= {"unauthorized", "forbidden", "not_found", "invalid"}
    if route.body is not None:
        codes |= {*_WITH_BODY}
    if route.access == "operator":
        codes |= {"too_many"}
    by_status: dict[int, list[str]] = {}
    for code in sorted(codes):
        by_status.setdefault(STATUSES[code], []).append(code)
    for status, names in sorted(by_status.items()):
        responses.setdefault(str(status), {"description": ", ".join(names), "content": _ERROR})
    return responses
