"""The tasks that every worker knows: they join the results of a group, and stop a flow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from onthedot.codec.body import NO_HEADERS, Headers, StoredBody, Undecodable
from onthedot.codec.untyped import decode_untyped_result
from onthedot.definitions.new_task import TaskOwner
from onthedot.flows.tasks import ITEMS
from onthedot.model.executor_names import ASYNC
from onthedot.model.flow_names import JOIN, STOP
from onthedot.model.options import ResolvedOptions, TaskOptions, resolve
from onthedot.stores.contract import Limit

_read = msgspec.json.Decoder(StoredBody).decode
_RETRIES: TaskOptions = {"max_retries": 3}


class BuiltinSource:
    """A source without user code. Implements `Source`."""

    module: str = __name__
    owner: TaskOwner | None = None  # most add no tasks of an app

    def __init__(self, name: str, options: TaskOptions = _RETRIES) -> None:
        self.name = name
        self.options: ResolvedOptions = resolve(f"task {name!r}", options)

    @property
    def executor(self) -> str:
        return ASYNC

    def max_running(self) -> int | None:
        return None

    def limits(self, name: str) -> list[Limit]:  # noqa: ARG002 - it has none, under any name
        return []

    def decode(self, body: bytes) -> tuple[dict[str, Any], Headers]:
        try:
            return self._arguments(_read(body)), NO_HEADERS
        except Exception as error:
            raise Undecodable(f"{self.name}: the stored arguments cannot be read: {error}") from error

    def _arguments(self, stored: StoredBody) -> dict[str, Any]:
        return dict(stored.args)

    def encode(self, value: object) -> bytes:
        assert isinstance(value, bytes)
        return value

    def decode_result(self, data: bytes) -> object:
        return decode_untyped_result(data)


class JoinSource(BuiltinSource):
    """Its result is the list of its predecessors' results, in the form in which they are stored."""

    def __init__(self) -> None:
        super().__init__(JOIN)

    def _arguments(self, stored: StoredBody) -> dict[str, Any]:
        assert stored.results is not None
        return {ITEMS: bytes(stored.results[ITEMS])}

    async def call(self, arguments: dict[str, Any]) -> bytes:
        items = arguments[ITEMS]
        assert isinstance(items, bytes)
        return items


class StopSource(BuiltinSource):
    """Cancels the members of a flow that have not started, or a child with its parent; if its worker dies, again."""

    def __init__(
        self, stop: Callable[[str, str], Awaitable[object]], cancel: Callable[[str, str], Awaitable[object]]
    ) -> None:
        """stop, cancel: members that have not started, or all; both get the flow and the reason."""
        super().__init__(STOP)
        self._stop = stop
        self._cancel = cancel

    async def call(self, arguments: dict[str, Any]) -> None:
        if "parent" in arguments:
            await self._cancel(arguments["flow"], f"its parent {arguments['parent']} was cancelled")
        else:
            await self._stop(arguments["flow"], f"stopped: {arguments['member']} did not succeed")
