"""What a call has to tell others, once it is committed."""

from __future__ import annotations


class Notifications:
    __slots__ = ("but", "cancel", "ended", "peers", "sooner", "woken")

    def __init__(self) -> None:
        self.woken: set[str] = set()  # sources that got ready tasks or freed capacity in this call
        self.sooner: set[str] = set()  # sources that got an alarm
        self.but: str | None = None  # the session that called, and looks by itself
        self.cancel: list[tuple[str, str, str]] = []  # session, uuid, reason
        self.ended: dict[str, list[str]] = {}  # by whom the task's policy names: uuids
        self.peers: bool = False  # a session has come
