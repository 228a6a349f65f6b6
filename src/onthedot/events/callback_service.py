"""A process that runs only the callback service."""

from __future__ import annotations

from typing import Protocol


class RunsCallbackService(Protocol):
    """The runtime of an app."""

    async def run_callback_service(self) -> None: ...


class CallbackHost(Protocol):
    """An app."""

    @property
    def runtime(self) -> RunsCallbackService: ...


class CallbackService:
    """Stores result events that come over the bus, and wakes who waits for them by ``app.expect`` or ``app.on_event``.

    A worker runs it by itself. This is for a process of its own, beside ``onthedot worker --without callback``.

    Args:
        app: The app whose results are received: those of ``Events(results=…)`` and of ``app.on_event``.
    """

    def __init__(self, app: CallbackHost) -> None:
        self._app = app

    async def run(self) -> None:
        """Runs until it is cancelled, also while store and bus cannot be reached for a time.

        Raises DeclarationError if the app receives no results, and StoreRefused if its store has no outbox.
        """
        await self._app.runtime.run_callback_service()
