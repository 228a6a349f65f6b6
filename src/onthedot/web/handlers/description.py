"""The description of the API as OpenAPI."""

from __future__ import annotations

from typing import Any

from onthedot.web.endpoints import Query, WebCall


async def show_openapi(call: WebCall[Query, None]) -> dict[str, Any]:
    from onthedot.web.openapi import openapi  # the table of routes has this handler
    from onthedot.web.routes import ROUTES

    return openapi(ROUTES, call.context.app.version)
