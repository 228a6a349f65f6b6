"""One listener of the change feed: its messages wait in a bounded buffer, so that a slow one never slows the feed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from msgspec import Struct

from onthedot.codec.plain_json import json_size
from onthedot.model.flow_names import MemberUuids
from onthedot.stores.contract import Transition

MAX_MESSAGES = 64  # in the buffer of a listener
MAX_BYTES = 1 << 20  # of them, as JSON
MAX_MERGED = 200  # transitions in one message
_REPLACED = ("counts", "rates", "attention")  # kinds of which only the newest message matters


@dataclass(frozen=True, slots=True)
class Watch:
    """The messages that a listener wants.

    Args:
        transitions: Transitions as they happen. Without them and without `uuids` the feed is read less often.
        matches: Which transitions; None: all of them.
        uuids: Tasks that are sent as `task` when they have changed.
        failures: Also send the tasks that fail as `task`.

    Example:
        >>> watch = Watch(matches=lambda each: each.source == "deliver")
        >>> watch.needs_transitions
        True
    """

    transitions: bool = True
    matches: Callable[[Transition], bool] | None = None
    uuids: frozenset[str] = frozenset()
    failures: bool = False

    @property
    def needs_transitions(self) -> bool:
        """Whether the feed is read every 100 ms, not every 250 ms."""
        return self.transitions or self.failures or bool(self.uuids)


def watch_flow(flow: str) -> Watch:
    """The transitions of the tasks of a flow, or of the parts of a batch.

    >>> watch = watch_flow("nightly")
    >>> watch.matches(Transition(0, "nightly", "mail", "succeeded"))
    True
    >>> watch.matches(Transition(0, "0193", "mail", "succeeded"))
    False
    """
    uuids = MemberUuids(flow)
    return Watch(matches=lambda each: each.uuid == flow or uuids.number(each.uuid) is not None)


class TransitionsMessage(Struct, frozen=True):
    """The data of a message of the kind `transitions`. more: transitions that are not listed."""

    transitions: Sequence[Transition]
    more: int = 0


class FeedMessage(Struct, frozen=True):
    """One message for a listener.

    kind and data:

    - `transitions`: a `TransitionsMessage`
    - `counts`: the number of tasks by source and state
    - `rates`: `Rates` by source, over the last ten seconds
    - `task`: a `TaskInfo`
    - `invalidate`: `{"what": name}`, one of `Invalidated`: read it again
    - `bulk_action`: the `AuditRecord` of a bulk action of any process, which has begun, gone on or ended
    - `store`: `{"unavailable_since": datetime | None, "error": str}`; None: it answers again
    - `reset`: None; messages were lost, so everything that is shown must be read again
    - any other kind that was given to `ChangeFeed.publish` or `FeedListener.put`

    id is set where a later `ChangeFeed.listen(last_id=…)` may continue; the last one that is not empty counts.
    size: about its bytes as JSON, measured once for all listeners
    """

    kind: str
    data: object = None
    id: str = ""
    size: int = 0


def measured(kind: str, data: object) -> FeedMessage:
    """A message with its size."""
    return FeedMessage(kind, data, size=json_size(data))


class FeedListener:
    """The messages of one listener, in order. Iterate over it, or await `next`; `close` it at the end.

    `counts`, `rates` and `attention` replace a predecessor that still waits, transitions are merged with those that
    wait. When 64 messages or 1 MiB wait, they are dropped, and one `reset` takes their place.
    """

    def __init__(self, watch: Watch, on_close: Callable[[FeedListener], None]) -> None:
        self.watch: Watch = watch
        self._on_close = on_close
        self._messages: dict[Hashable, FeedMessage] = {}
        self._number = 0  # keys of messages that are not merged
        self._size = 0  # of the messages that wait
        self._id = ""
        self._begin = ""  # the first id
        self._arrived = asyncio.Event()
        self._error: BaseException | None = None
        self._is_closed = False

    # -- the reader

    def __aiter__(self) -> FeedListener:
        return self

    async def __anext__(self) -> FeedMessage:
        return await self.next()

    async def begin(self) -> str:
        """Wait until this listener is part of the feed. Return the id after which its messages begin.

        "": messages wait already, since the store does not answer.
        """
        while not self._begin and not self._messages and self._error is None and not self._is_closed:
            self._arrived.clear()
            await self._arrived.wait()
        return self._begin

    async def next(self) -> FeedMessage:
        """Wait for a message. Raises StopAsyncIteration after `close`, and an error that has ended the feed."""
        while not self._messages:
            if self._error is not None:
                raise self._error
            if self._is_closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages.pop(next(iter(self._messages)))
        self._size -= message.size
        if "transitions" in self._messages:  # they are older than the id
            return message
        return FeedMessage(message.kind, message.data, self._id)

    def close(self) -> None:
        """Stop listening; the feed stops reading after its last listener. Repeated calls are harmless."""
        if not self._is_closed:
            self._is_closed = True
            self._on_close(self)
            self._arrived.set()

    # -- the feed

    def advance(self, position: str) -> None:
        """All messages up to this id have been put."""
        self._id = position
        if not self._begin:
            self._begin = position
            self._arrived.set()

    def fail(self, error: BaseException) -> None:
        """No message will follow."""
        self._error = error
        self._arrived.set()

    def put_transitions(self, transitions: Sequence[Transition], more: int) -> None:
        """Put those that this listener watches, merged with those that wait; the newest stay."""
        if not self.watch.transitions:
            return
        matches = self.watch.matches
        wanted = [each for each in transitions if matches is None or matches(each)]
        if not wanted and not more:
            return
        waiting = self._messages.get("transitions")
        if waiting is not None:
            assert isinstance(waiting.data, TransitionsMessage)
            wanted = [*waiting.data.transitions, *wanted]
            more += waiting.data.more
        dropped = max(0, len(wanted) - MAX_MERGED)
        data = TransitionsMessage(wanted[dropped:], more + dropped)
        self._put("transitions", measured("transitions", data))

    def put(self, kind: str, data: object, key: Hashable = None) -> None:
        """Put a message. key: a message of the same kind and key that still waits is replaced."""
        self.put_message(measured(kind, data), key)

    def put_message(self, message: FeedMessage, key: Hashable = None) -> None:
        """As `put`, of a message that several listeners get."""
        if message.kind in _REPLACED:
            self._put(message.kind, message)
        elif key is not None:
            self._put((message.kind, key), message)
        else:
            self._number += 1
            self._put(self._number, message)

    def reset(self) -> None:
        """Drop what waits: the listener must read everything again."""
        self._messages.clear()
        self._size = 0
        self._put("reset", FeedMessage("reset"))

    def _put(self, key: Hashable, message: FeedMessage) -> None:
        if self._is_closed:
            return
        replaced = self._messages.get(key)
        size = self._size + message.size - (0 if replaced is None else replaced.size)
        others = len(self._messages) - (replaced is not None)
        if others >= MAX_MESSAGES or (others and size > MAX_BYTES):
            self.reset()
            return
        self._messages[key] = message
        self._size = size
        self._arrived.set()
