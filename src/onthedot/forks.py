"""One registry for fork hooks.

A fork copies only the thread that calls it: locks of other threads stay locked in the child, and connections are shared
with the parent. An object that has either registers once; the registry holds it weakly. Stores run before the others.
"""

from __future__ import annotations

import os
from _thread import allocate_lock  # `threading` is not for values, and a uuid generator registers here
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary


class ForkAware(Protocol):
    def after_fork(self) -> None:
        """Called in the child: let go of what belongs to the parent."""
        ...


@runtime_checkable
class ForkGuard(Protocol):
    """A store that must not be forked in the middle of a call."""

    def before_fork(self) -> None:
        """Wait for the call in progress and begin no other."""
        ...

    def after_fork_in_parent(self) -> None: ...


_stores: WeakKeyDictionary[ForkAware, None] = WeakKeyDictionary()
_others: WeakKeyDictionary[ForkAware, None] = WeakKeyDictionary()
_guards: list[ForkGuard] = []  # of the fork in progress
_parents: list[object] = []
_one_fork = allocate_lock()


def register_fork_hooks(thing: ForkAware, *, store: bool = False) -> None:
    """Calls `after_fork` in every child, in the order of registration; of a ForkGuard its other hooks too."""
    (_stores if store else _others)[thing] = None


def keep_over_fork(thing: object) -> None:
    """Holds a connection of the parent for ever: a child that frees it would close it for the parent too."""
    _parents.append(thing)


def _before_fork() -> None:
    _one_fork.acquire()
    _guards.extend(store for store in list(_stores) if isinstance(store, ForkGuard))
    for guard in _guards:
        guard.before_fork()


def _after_fork_in_parent() -> None:
    while _guards:
        _guards.pop().after_fork_in_parent()
    _one_fork.release()


def _after_fork_in_child() -> None:
    _guards.clear()
    _one_fork.release()
    for thing in [*_stores, *_others]:
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
