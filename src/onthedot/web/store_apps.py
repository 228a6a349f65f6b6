"""All apps of a store behind one address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Self

from onthedot.api.app import App
from onthedot.errors import StoreError
from onthedot.operations.apps import apps_of
from onthedot.web.app_site import app_access
from onthedot.web.context import WebContext
from onthedot.web.errors import ApiError
from onthedot.web.shared_reads import SharedReads

_log = logging.getLogger("onthedot.web")
NAMES_AGE = 30.0  # seconds for which the names of the apps are kept
_REST = 20  # times as long as listing them took: on Redis it scans all keys of the server
_PATIENCE = 5.0  # seconds; a page does not wait longer for the names of other apps


class StoreApps:
    """Opens an app at the first request that names it, and closes all of them at the end of the block.

    url: of the store; make: makes the app of a name. Each app has its own reader of changes, audit log and figures.
    """

    def __init__(self, url: str, make: Callable[[str], App[Any]]) -> None:
        self._url = url
        self._make = make
        self._reads = SharedReads()
        self._opening = asyncio.Lock()
        self._known: Sequence[str] = ()
        self._contexts: dict[str, WebContext] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def names(self) -> Sequence[str]:
        """Those that have tasks, schedules or a live worker, as they were when they could be listed last."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._listed()
        return self._known

    async def _listed(self) -> Sequence[str]:
        return await self._reads.get("names", NAMES_AGE, self._list, rest=_REST)

    async def _list(self) -> Sequence[str]:
        try:
            self._known = await apps_of(self._url)
        except StoreError as error:  # the apps that are open are shown all the same
            _log.warning("[apps] the apps of the store cannot be listed: %s", error)
        return self._known

    async def context(self, name: str, first: WebContext) -> WebContext:
        """The context of an app; with the users, settings and streams of the first one."""
        found = self._contexts.get(name)
        if found is not None:
            return found
        names = await self._listed()
        if name not in names:
            raise ApiError("not_found", f"no app {name!r} in this store; it has {', '.join(names)}", field="app")
        async with self._opening:
            if name not in self._contexts:
                self._contexts[name] = await self._open(name, first)
        return self._contexts[name]

    async def _open(self, name: str, first: WebContext) -> WebContext:
        app = self._make(name)
        await self._stack.enter_async_context(app)
        access = app_access(app)
        return first.sibling(access, first.app._replace(name=name, is_outbox_apart=access.is_outbox_apart))
