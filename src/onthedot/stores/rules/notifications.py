"""Notifications of other sessions about one call, sent when it is committed."""

from __future__ import annotations

from typing import NamedTuple


class CancelRequest(NamedTuple):
    """A running task that is to be cancelled, and the session that runs it."""

    session: str
    uuid: str
    reason: str


class Notifications:
    """Collected by the rules during a call; the store sends it as hints."""

    __slots__ = ("alarmed", "caller", "cancel_requests", "ended", "recheck", "session_joined", "woken")

    def __init__(self) -> None:
        self.woken: set[str] = set()  # sources that got ready tasks or capacity in this call
        self.alarmed: set[str] = set()  # sources that got an alarm
        self.recheck: bool = False  # a chore or a schedule, which belong to no source
        self.caller: str | None = None  # this session needs no hint: it sees the effects itself
        self.cancel_requests: list[CancelRequest] = []
        self.ended: dict[str, list[str]] = {}  # policy.reply_to → uuids
        self.session_joined: bool = False  # other processes must watch it

    def __bool__(self) -> bool:
        return bool(
            self.woken or self.alarmed or self.recheck or self.cancel_requests or self.ended or self.session_joined
        )

    def clear(self) -> None:
        """For the next call. The memory store keeps one object: most calls have little to notify."""
        self.woken.clear()
        self.alarmed.clear()
        self.recheck = False
        self.cancel_requests.clear()
        self.ended.clear()
        self.session_joined = False
