"""Changes as server-sent events: one stream per tab, all of them from one reader of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from onthedot.errors import StoreError, TaskNotFound
from onthedot.model.task import TaskInfo
from onthedot.operations.feed_listener import FeedListener, FeedMessage, TransitionsMessage, Watch, watch_flow
from onthedot.web import server_exit
from onthedot.web.context import WebContext
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.filters import TaskQuery, Text, read_filter
from onthedot.web.handlers.tasks import task_rows

COMMENT_EVERY = 15.0  # seconds without a message: proxies close a connection on which nothing comes
LONGEST = 1800.0  # seconds for which a stream lives; then the browser continues with a new one
LONGEST_UNWATCHED = 30.0  # the same, where the server does not show that it stops, and so waits for its streams
_PROGRESS_AGE = 0.5  # seconds between two reads of the progress of a flow or batch
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # nginx would gather messages
_FIRST = b"retry: 1000\n\n"  # ms until a browser connects again
_COMMENT = b":\n\n"


class ChangesQuery(Query, frozen=True, kw_only=True):
    """watch: the view; uuid: of a task; id: of a flow or batch; q: the filter of a list of tasks."""

    watch: Literal["overview", "tasks", "task", "flow", "batch"] = "overview"
    uuid: Text = ""
    id: Text = ""
    q: Text = ""


async def follow_changes(call: WebCall[ChangesQuery, None]) -> StreamingResponse:
    query = call.query
    watch = Watch(transitions=False, failures=query.watch == "overview")
    progress = ""
    match query.watch:
        case "tasks":
            where = read_filter(TaskQuery(q=query.q), call.context.redaction)
            source = where.get("source")
            watch = Watch(matches=None if source is None else lambda each: each.source == source)
        case "task":
            uuid = await call.operations.tasks.complete_uuid(query.uuid)
            watch = Watch(transitions=False, uuids=frozenset({uuid}))
        case "flow" | "batch":
            progress = await call.operations.tasks.complete_uuid(query.id, query.watch)
            watch = watch_flow(progress)
        case "overview":
            pass
    last_id = call.request.headers.get("last-event-id", "")[:200]
    return ChangeStreamResponse(ChangeStream(call, watch, last_id, progress))


class ChangeStream:
    """Messages for one browser."""

    def __init__(self, call: WebCall[ChangesQuery, None], watch: Watch, last_id: str, progress: str) -> None:
        """progress: the id of a flow or batch whose progress is sent."""
        self._call = call
        self._context: WebContext = call.context
        self._watch = watch
        self._last_id = last_id
        self._progress = progress
        self._sent_progress: object = None
        self._listener: FeedListener | None = None
        self._end_of_life: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._context.streams.add(self, self._call.user.name)
        is_known = server_exit.is_known() or bool(self._context.settings.host)
        lifetime = LONGEST if is_known else LONGEST_UNWATCHED
        self._end_of_life = asyncio.get_running_loop().call_later(lifetime, self.end)
        server_exit.exit_watch().add(self, self.end)
        self._listener = self._call.operations.feed.listen(self._watch, self._last_id)

    def end(self) -> None:
        """No more messages; the browser continues with a new stream."""
        if self._listener is not None:
            self._listener.close()

    def close(self) -> None:
        self.end()
        self._context.streams.remove(self)
        server_exit.exit_watch().remove(self)
        if self._end_of_life is not None:
            self._end_of_life.cancel()

    async def messages(self) -> AsyncGenerator[bytes, None]:
        listener = self._listener
        assert listener is not None
        yield _FIRST + encode_message("hello", self._hello())
        while True:
            try:
                async with asyncio.timeout(COMMENT_EVERY):
                    message = await listener.next()
            except TimeoutError:
                yield _COMMENT
                continue
            except StopAsyncIteration:
                break
            for encoded in await self._encode(message):
                yield encoded
        yield encode_message("bye", None)

    def _hello(self) -> dict[str, Any]:
        user = self._call.user
        return {"now": datetime.now(UTC), "user": user.name, "role": user.role, "version": self._context.app.version}

    async def _encode(self, message: FeedMessage) -> Sequence[bytes]:
        data = message.data
        found: list[bytes] = []
        if isinstance(data, TransitionsMessage):
            rows = [
                {"at": each.at, "uuid": each.uuid, "source": each.source, "state": _public(each.state)}
                for each in data.transitions
            ]
            data = {"transitions": rows, "more": data.more}
            found += await self._progress_messages()
        elif isinstance(data, TaskInfo):
            try:
                data = (await task_rows(self._context)).row(data)
            except (StoreError, ApiError):  # the message "store" tells it
                return ()
        return [*found, encode_message(message.kind, data, message.id)]

    async def _progress_messages(self) -> Sequence[bytes]:
        """How far the flow or batch is, if it has changed."""
        if not self._progress:
            return ()
        kind = self._call.query.watch
        operations = self._call.operations
        read: Callable[[str], Any] = operations.flows.progress if kind == "flow" else operations.batches.progress
        try:
            name = f"progress {kind} {self._progress}"
            found = await self._context.shared.get(name, _PROGRESS_AGE, lambda: read(self._progress))
        except (StoreError, TaskNotFound):
            return ()
        if found == self._sent_progress:
            return ()
        self._sent_progress = found
        return (encode_message(kind, {"id": self._progress, "progress": found}),)


def _public(state: str) -> str:
    """Users see a parked task as ready."""
    return "ready" if state == "parked" else state


def encode_message(kind: str, data: object, cursor: str = "") -> bytes:
    """
    >>> encode_message("reset", None, "7.12")
    b'id: 7.12\\nevent: reset\\ndata: null\\n\\n'
    """
    named = f"id: {cursor}\n" if cursor else ""
    return f"{named}event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


class ChangeStreamResponse(StreamingResponse):
    """A response that listens while it is sent, and no longer."""

    media_type = "text/event-stream"

    def __init__(self, stream: ChangeStream) -> None:
        super().__init__(stream.messages(), headers=_HEADERS)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._stream.open()
            await super().__call__(scope, receive, send)
        finally:
            self._stream.close()
