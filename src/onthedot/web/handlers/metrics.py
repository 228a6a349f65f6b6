"""The metrics of all workers of the app, as Prometheus reads them."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from onthedot.errors import StoreError
from onthedot.model.figures import Figures
from onthedot.observability.metrics import CONTENT_TYPE, metrics_text
from onthedot.operations import Operations
from onthedot.operations.fleet_metrics import FLEET_METRICS, unavailable
from onthedot.web.endpoints import Query, WebCall

_AGE = 5.0  # seconds for which a page is kept: several scrapers cost one reading
_TIMEOUT = 4.0  # seconds


async def show_metrics(call: WebCall[Query, None]) -> Response:
    """A store that does not answer is a page with ``onthedot_store_up 0``: Prometheus keeps nothing of an error."""
    operations = call.operations
    max_sources = call.context.settings.metrics_sources
    text = await call.context.shared.get("metrics", _AGE, lambda: _text(operations, max_sources))
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


async def _text(operations: Operations, max_sources: int) -> str:
    figures: Figures
    try:
        async with asyncio.timeout(_TIMEOUT):
            figures = await operations.metrics(max_sources)
    except (StoreError, OSError, TimeoutError):
        figures = unavailable()
    return metrics_text(FLEET_METRICS, figures)
