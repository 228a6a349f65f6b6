"""An API that takes orders, runs their tasks, and has the page for operators below /ops/tasks.

    pip install 'onthedot[fastapi]' fastapi uvicorn
    cd examples/fastapi_shop
    uvicorn web:api --workers 2

Open http://127.0.0.1:8000/ops/tasks/ and take the address with the token from the log, or set ONTHEDOT_WEB_TOKEN.
"""

from __future__ import annotations

from fastapi import FastAPI, Response
from tasks import app, ship

from onthedot.integrations.fastapi import accepted, dashboard, lifespan, status

api = FastAPI(lifespan=lifespan(app, run=True))  # each server process also runs tasks
api.mount("/ops/tasks", dashboard(app))


@api.post("/orders/{number}", status_code=202)
async def order(number: int) -> Response:
    return accepted(await ship.enqueue(number), url="/shipments/{uuid}")


@api.get("/shipments/{uuid}")
async def shipment(uuid: str) -> Response:
    return await status(app, uuid)
