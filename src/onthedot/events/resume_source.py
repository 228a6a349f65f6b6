"""The task ``onthedot.resume``: it starts when all expected events are stored, and resumes a flow run of Prefect.

A second one starts when the handle has expired: a paused flow run would wait for ever.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec

from onthedot.errors import Reject, StoreRefused
from onthedot.flows.builtin import BuiltinSource
from onthedot.model.flow_names import RESUME
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import HandleRecord

PREFECT = "prefect:"  # and the id of the flow run: the target of a handle
_BACKOFF = tuple(min(0.2 * 2**number, 30) for number in range(10))
_TIMEOUT = 10.0  # seconds of one request


class ResumeSource(BuiltinSource):
    """Its end wakes callers of ``wait()``. A flow run of Prefect is resumed first."""

    def __init__(self, outbox: Callable[[], Outbox | None], prefect: str | None) -> None:
        """outbox: keeps the handles. prefect: URL of the API of a Prefect server."""
        super().__init__(RESUME, {"max_retries": len(_BACKOFF), "backoff": _BACKOFF, "keep": 86_400})
        self._outbox = outbox
        self._prefect = prefect

    async def call(self, arguments: dict[str, Any]) -> None:
        outbox = self._outbox()
        if outbox is None:
            raise Reject("this worker has no outbox: its Events(outbox=…) differ from those of the process that waits")
        handles = await outbox.handles([arguments["correlation_id"]])
        for handle in handles:
            if handle.id != arguments["handle"]:
                continue
            if handle.status == "complete":
                await self._resume(handle)
                await outbox.complete_handles((), [handle.id])
            elif handle.status == "expired":
                await self._resume(handle)

    async def _resume(self, handle: HandleRecord) -> None:
        if handle.target.startswith(PREFECT):
            await asyncio.to_thread(resume_flow_run, self._api(), handle.target.removeprefix(PREFECT))

    def _api(self) -> str:
        url = self._prefect or os.environ.get("PREFECT_API_URL")
        if not url:
            raise StoreRefused("a flow run of Prefect is to be resumed: set Events(prefect=URL) or $PREFECT_API_URL")
        return url.rstrip("/")


def resume_flow_run(api: str, flow_run: str) -> None:
    """Sends the request. A run that is not paused, or has been resumed before, is done; an unknown run is an error."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("PREFECT_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = Request(f"{api}/flow_runs/{flow_run}/resume", b"{}", headers)  # noqa: S310 - the user's setting
    try:
        with urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310
            status = msgspec.json.decode(response.read()).get("status")
    except HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            raise Reject(f"Prefect has no flow run {flow_run}") from error
        raise
    if status == "WAIT":
        raise ConnectionError(f"Prefect asks to resume flow run {flow_run} later")
