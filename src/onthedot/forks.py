"""Around a fork no other thread may be in the middle of a call: the child would get half of it, and a shut lock."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Locked(Protocol):
    _lock: threading.Lock


alive: weakref.WeakSet[Locked] = weakref.WeakSet()
_forking: list[Locked] = []


def _before_fork() -> None:
    _forking.extend(alive)
    for store in _forking:
        store._lock.acquire()


def _after_fork() -> None:
    while _forking:
        _forking.pop()._lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
