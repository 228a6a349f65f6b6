"""Changes as server-sent events: one stream per tab, all of them from one reader of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, assert_never

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from onthedot.errors import StoreError, TaskNotFound
from onthedot.model.task import TaskInfo
from onthedot.operations.audit import AuditRecord
from onthedot.operations.feed_listener import FeedListener, FeedMessage, TransitionsMessage, Watch, watch_flow
from onthedot.web import server_events
from onthedot.web.context import WebContext
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.filters import TaskQuery, Text, read_filter
from onthedot.web.handlers.bulk_actions import action_detail
from onthedot.web.handlers.overview import ATTENTION_AGE, read_attention
from onthedot.web.handlers.tasks import task_rows
from onthedot.web.schemas import AttentionList
from onthedot.web.server_events import COMMENT, FIRST, HEADERS, StreamLifetime, encode_event

_PROGRESS_AGE = 0.5  # seconds between two reads of the progress of a flow or batch


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
        case _:
            assert_never(query.watch)
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
        self._attention: asyncio.Task[None] | None = None
        self._lifetime = StreamLifetime(self.end)

    def open(self) -> None:
        self._context.streams.add(self, self._call.user.name)
        self._lifetime.start(is_ended_by_server=bool(self._context.settings.host))
        self._listener = self._call.operations.feed.listen(self._watch, self._last_id, has_read=True)

    def end(self) -> None:
        """No more messages; the browser continues with a new stream."""
        if self._listener is not None:
            self._listener.close()

    def close(self) -> None:
        self.end()
        if self._attention is not None:
            self._attention.cancel()
        self._context.streams.remove(self)
        self._lifetime.stop()

    async def messages(self) -> AsyncGenerator[bytes, None]:
        listener = self._listener
        assert listener is not None
        yield FIRST
        begin = await listener.begin()
        # Of a stream that continues another, transitions are yet to be sent: the browser keeps its last id.
        yield encode_event("hello", self._hello(begin), None if self._last_id else begin or None)
        if self._call.query.watch == "overview":
            self._attention = asyncio.create_task(self._follow_attention(listener), name="onthedot-attention")
            self._attention.add_done_callback(_fail_with(listener))
        while True:
            try:
                async with asyncio.timeout(server_events.COMMENT_EVERY):
                    message = await listener.next()
            except TimeoutError:
                yield COMMENT
                continue
            except StopAsyncIteration:
                break
            for encoded in await self._encode(message):
                yield encoded
        yield encode_event("bye", None)

    def _hello(self, begin: str) -> dict[str, Any]:
        user = self._call.user
        return {
            "now": datetime.now(UTC),
            "user": user.name,
            "role": user.role,
            "version": self._context.app.version,
            "cursor": begin or None,
        }

    async def _follow_attention(self, listener: FeedListener) -> None:
        """It also changes with time alone, so it is read again and again: once for all tabs, and for GET /overview."""
        sent: AttentionList | None = None
        while True:
            with suppress(StoreError, ApiError):  # the message "store" reports it
                found = await read_attention(self._context, await self._context.live())
                if found != sent:
                    sent = found
                    listener.put("attention", found)
            await asyncio.sleep(ATTENTION_AGE)

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
        elif isinstance(data, AuditRecord):
            data = action_detail(data, self._context.redaction)
        elif isinstance(data, TaskInfo):
            try:
                data = (await task_rows(self._context)).row(data)
            except (StoreError, ApiError):  # the message "store" reports it
                return ()
        return [*found, encode_event(message.kind, data, message.id or None)]

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
        return (encode_event(kind, {"id": self._progress, "progress": found}),)


def _fail_with(listener: FeedListener) -> Callable[[asyncio.Task[None]], None]:
    """An error of the task ends the stream of the listener."""

    def end(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            listener.fail(error)

    return end


def _public(state: str) -> str:
    """Users see a parked task as ready."""
    return "ready" if state == "parked" else state


class ChangeStreamResponse(StreamingResponse):
    """A response that listens while it is sent, and no longer."""

    media_type = "text/event-stream"

    def __init__(self, stream: ChangeStream) -> None:
        super().__init__(stream.messages(), headers=HEADERS)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._stream.open()
            await super().__call__(scope, receive, send)
        finally:
            self._stream.close()
