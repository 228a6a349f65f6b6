"""Notifications of other sessions about one call, sent when it is committed."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct, field


class CancelRequest(NamedTuple):
    """A running task that is to be cancelled, and the session that runs it."""

    session: str
    uuid: str
    reason: str


class Notifications(Struct):
    """Collected by the rules during a call; the store sends it as hints."""

    woken: set[str] = field(default_factory=set[str])  # sources that got ready tasks or capacity in this call
    alarmed: set[str] = field(default_factory=set[str])  # sources that got an alarm
    recheck: bool = False  # a chore or a schedule, which belong to no source
    wait_over: bool = False  # a counter has reached the value that a task waits for: any turn ends the wait
    caller: str | None = None  # this session needs no hint: it sees the effects itself
    cancel_requests: list[CancelRequest] = []
    ended: dict[str, list[str]] = {}  # policy.reply_to, or a subscriber → uuids
    new_items: dict[str, list[str]] = {}  # subscriber → uuids
    events: bool = False  # there are events to relay or to read, or buckets to own
    session_joined: bool = False  # other processes must watch it

    def __bool__(self) -> bool:
        return bool(
            self.woken
            or self.alarmed
            or self.recheck
            or self.wait_over
            or self.cancel_requests
            or self.ended
            or self.new_items
            or self.events
            or self.session_joined
        )

    def clear(self) -> None:
        """For the next call. The memory store keeps one object: most calls have little to notify."""
        self.woken.clear()
        self.alarmed.clear()
        self.recheck = False
        self.wait_over = False
        self.cancel_requests.clear()
        self.ended.clear()
        self.new_items.clear()
        self.events = False
        self.session_joined = False
