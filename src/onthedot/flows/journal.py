"""The saved steps of one task: found by name, checked for changed code, written under the lease of the run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from onthedot.engine.note_batcher import NoteBatcher
from onthedot.engine.repeated_calls import RepeatedCalls
from onthedot.errors import Reject, StepChanged
from onthedot.model.context import RunState
from onthedot.model.error_policy import LeaseLost
from onthedot.model.failures import type_name
from onthedot.model.saved_steps import WAIT, SavedStep, decode_step, encode_step, step_name, until_key
from onthedot.model.value_errors import InvalidOption
from onthedot.stores.capabilities import AsyncNotes, SyncNotes, capability, find_capability
from onthedot.stores.contract import Note, Store

MAX_STEPS = 1000
_MAX_BYTES = 64 << 20  # of all saved steps of a task
_PAGE = 1000


class StepRequest(NamedTuple):
    """One use of a step in this run."""

    key: str  # name#k: the k-th use of the name, from 1
    position: int  # of the request in this run, from 0
    after_errors: tuple[str, ...] = ()  # of steps before it, which the function has caught


class StepJournal:
    """The steps of one run. A request gets its position before anything is awaited, so that the order is the code's."""

    def __init__(self, run: RunState, store: Store, notes: NoteBatcher, calls: RepeatedCalls) -> None:
        self._run = run
        self._store = store
        self._notes = notes
        self._calls = calls
        self._lock = threading.Lock()  # a sync task may use steps in threads of its own
        self._loading = asyncio.Lock()
        self._saved: dict[str, SavedStep] = {}
        self._size = 0
        self._uses: dict[str, int] = {}
        self._requests = 0
        self._errors: tuple[str, ...] = ()  # of steps of this run: key and type
        self._requested: set[str] = set()
        self._unrequested: list[tuple[int, str]] = []  # of the saved steps, the last one first
        self._old_names: dict[str, str] = {}
        self._added: frozenset[str] = frozenset()
        self._removed: frozenset[str] = frozenset()
        self.is_loaded: bool = False

    # -- requests

    def request(self, name: str) -> StepRequest:
        with self._lock:
            number = self._uses.get(name, 0) + 1
            self._uses[name] = number
            request = StepRequest(f"{name}#{number}", self._requests, self._errors)
            self._requests += 1
        return request

    def add_error(self, request: StepRequest, error: Exception) -> None:
        """A step has raised. If the function catches the error, what follows depends on it."""
        with self._lock:
            self._errors = (*self._errors, f"{request.key} {type_name(type(error))}")

    def find(self, request: StepRequest) -> SavedStep | None:
        """The saved step. None: it shall run now. Raises StepChanged if the code has changed before it."""
        key = self._saved_key(request.key)
        self._requested.add(key)
        if key.startswith(WAIT):
            self._requested.add(until_key(key))
        saved = self._saved.get(key)
        if saved is None:
            self._check_unchanged(request)
            if len(self._saved) >= MAX_STEPS:
                raise Reject(f"step {request.key!r}: the task has {MAX_STEPS:,} saved steps; make parts of it tasks")
        return saved

    def peek(self, key: str) -> SavedStep | None:
        """The saved step of a key, without a request."""
        return self._saved.get(self._saved_key(key))

    def saved_waits(self) -> Iterator[SavedStep]:
        """All signals that the task has taken."""
        return (step for key, step in self._saved.items() if key.startswith(WAIT))

    def _saved_key(self, key: str) -> str:
        if key in self._saved or not self._old_names:
            return key
        name, _, number = key.rpartition("#")
        old = self._old_names.get(name)
        if old is None:
            return key
        return f"{old}#{number}"

    # -- changed code

    def declare_changes(self, renamed: Mapping[str, str], added: Iterable[str], removed: Iterable[str]) -> None:
        if self._requests:
            raise RuntimeError("ctx.changed() is called before the first step of a run")
        self._old_names = {new: old for old, new in renamed.items()}
        for new, old in list(self._old_names.items()):
            if new.startswith(WAIT):
                self._old_names[until_key(new)] = until_key(old)
        self._added = frozenset(added)
        self._removed = frozenset(removed)

    def _check_unchanged(self, request: StepRequest) -> None:
        """A saved step of an earlier or the same position must have been requested: otherwise the code is another."""
        if step_name(request.key) in self._added:
            return
        while self._unrequested:
            position, key = self._unrequested[-1]
            if position > request.position:
                return
            if key not in self._requested and step_name(key) not in self._removed and self._is_expected(key):
                raise StepChanged(self._run.record.uuid, _changed_text(request.key, key))
            self._unrequested.pop()

    def _is_expected(self, key: str) -> bool:
        """A step that was saved after caught errors belongs to runs in which the same steps raise the same errors."""
        return set(self._errors).issuperset(self._saved[key].after_errors)

    def never_requested(self) -> list[str]:
        """Saved steps that this run did not ask for."""
        left = self._saved.keys() - self._requested
        return sorted(key for key in left if step_name(key) not in self._removed and self._is_expected(key))

    # -- reading and writing

    async def load(self) -> None:
        """Reads the saved steps, once per run. Also in a first run: the run before may have been released."""
        async with self._loading:
            if self.is_loaded:
                return
            after = 0
            while True:
                page = await self._calls.run(partial(self._store.notes, self._run.record.uuid, after, _PAGE, "step"))
                for number, note in page:
                    self._add(note.name, decode_step(note.data), len(note.data))
                    after = number
                if len(page) < _PAGE:
                    break
            self._unrequested = sorted(((step.at, key) for key, step in self._saved.items()), reverse=True)
            self.is_loaded = True

    async def save(self, key: str, step: SavedStep) -> None:
        """The step is in the store when this returns. Raises TaskCancelled if the lease is lost."""
        data = self._data(key, step)
        lease = self._run.lease
        while not await self._notes.write(Note(lease, "step", key, data)):
            if lease == self._run.lease:
                raise self._lost()
            lease = self._run.lease  # the store has lost its last writes, and leased the running task again
        self._add(key, step, len(data))

    def joins(self) -> SyncNotes:
        """The store, if a step can be saved in the caller's transaction; else StoreRefused."""
        return capability(self._store, SyncNotes, "ctx.step_in()")

    def save_in(self, connection: object, key: str, step: SavedStep) -> None:
        """The step is saved with the caller's commit. Raises TaskCancelled if the lease is lost."""
        data = self._data(key, step)
        if self.joins().note_in(connection, Note(self._run.lease, "step", key, data)) == "lost":
            raise self._lost()
        self._add(key, step, len(data))

    async def save_awaited(self, connection: object, key: str, step: SavedStep) -> None:
        """The same for a connection of the running event loop, if the store takes one."""
        store = find_capability(self._store, AsyncNotes)
        if store is None:
            self.save_in(connection, key, step)
            return
        data = self._data(key, step)
        if await store.note_awaited(connection, Note(self._run.lease, "step", key, data)) == "lost":
            raise self._lost()
        self._add(key, step, len(data))

    def _data(self, key: str, step: SavedStep) -> bytes:
        data = encode_step(step)
        if self._size + len(data) > _MAX_BYTES:
            raise Reject(
                f"step {key!r}: the saved steps of the task take more than {_MAX_BYTES:,} bytes; keep large results "
                "elsewhere and return where they are"
            )
        return data

    def _lost(self) -> LeaseLost:
        return LeaseLost(self._run.record.uuid)

    def _add(self, key: str, step: SavedStep, size: int) -> None:
        self._saved[key] = step
        self._size += size


def check_step_name(name: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or "#" in name or not name.isprintable():
        raise InvalidOption(f"the name of a step has 1 to 200 printable characters and no '#'; not {name!r}")
    return name


def _changed_text(new: str, old: str) -> str:
    new_name = step_name(new)
    old_name = step_name(old)
    return (
        f"the code has changed: step {new!r} is reached, but {old!r}, which an earlier run has saved at this point, "
        f"was not requested. Nothing of {new!r} has run. Declare the change before the first step: "
        f"ctx.changed(renamed={{{old_name!r}: {new_name!r}}}) to use its result, added={{{new_name!r}}} if the step is "
        f"new, or removed={{{old_name!r}}} if the old one is gone; then retry the task"
    )
