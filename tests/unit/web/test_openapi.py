"""The description of the API, and its committed copy."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from onthedot import App
from onthedot.web.openapi import openapi
from onthedot.web.routes import ROUTES
from tests.support.web_site import web_site
from tests.unit.web.openapi import FILE, text


def test_committed_description_is_current() -> None:
    assert FILE.read_text("utf-8") == text(), "run python -m tests.unit.web.openapi"


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        found = [value["$ref"]] if "$ref" in value else []
        return found + [each for item in value.values() for each in references(item)]
    if isinstance(value, list):
        return [each for item in value for each in references(item)]
    return []


def test_every_reference_leads_to_a_schema() -> None:
    description = openapi(ROUTES, "1")
    schemas = description["components"]["schemas"]
    assert {ref.removeprefix("#/components/schemas/") for ref in references(description)} <= schemas.keys()


def test_operations_have_different_names() -> None:
    paths = openapi(ROUTES, "1")["paths"].values()
    names = Counter(operation["operationId"] for path in paths for operation in path.values())
    assert [name for name, count in names.items() if count > 1] == []


def test_times_have_their_format() -> None:
    row = openapi(ROUTES, "1")["components"]["schemas"]["TaskListRow"]
    assert row["properties"]["added_at"]["format"] == "date-time"


def test_every_success_is_described() -> None:
    paths = openapi(ROUTES, "1")["paths"]
    answers = {
        status: answer["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for status, answer in paths["/api/v1/tasks/{uuid}/retry"]["post"]["responses"].items()
        if status.startswith("2")
    }
    assert answers == {"200": "Changed", "201": "AddedTask"}


async def test_description_is_served(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        answer = await site.viewer.get("/openapi.json")
        assert json.loads(answer.body)["paths"].keys() == openapi(ROUTES, "1")["paths"].keys()
