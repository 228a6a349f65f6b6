"""Steps as the journal of a task keeps them. Names of sleeps, waits and children begin with a `#`, others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from msgspec import Struct

SLEEP = "#sleep"
WAIT = "#wait:"  # and the names of the signals
UNTIL = "#until:"  # start and deadline of the wait of the same name and number
RUN = "#run:"  # and the source of the child's last task

T = TypeVar("T", bound=Struct)


class SavedStep(Struct, frozen=True, omit_defaults=True):
    """The data of a note of kind `step`. The name of the note is name#k: the k-th use of the name, from 1."""

    at: int  # position of the request in the run that has saved it
    value: msgspec.Raw
    type: str = ""  # annotation by which the value was written
    after_errors: tuple[str, ...] = ()  # key and type of errors of steps before it that the function had caught


class SavedSleep(Struct, frozen=True):
    """The value of a sleep. 0: written by an earlier version."""

    until: int  # ms, by the clock of the store
    since: int = 0
    run_since: int = 0  # when the run began that began the sleep


class SavedUntil(Struct, frozen=True):
    """Start and deadline of a wait."""

    since: int
    until: int | None  # None: it waits for ever
    run_since: int = 0  # as of a sleep


class SavedChild(Struct, frozen=True):
    """A child that has succeeded. Its result is in the record of the flow's last task."""

    flow: str


def to_raw(data: bytes) -> msgspec.Raw:
    """An encoded value as a part of a note. None is encoded as nothing, which is no JSON."""
    return msgspec.Raw(data or b"null")


def from_raw(raw: msgspec.Raw) -> bytes:
    data = bytes(raw)
    return b"" if data == b"null" else data


class TakenSignal(Struct, frozen=True, omit_defaults=True):
    """The end of a wait."""

    counter: str = ""  # "": the wait has timed out
    number: int = 0
    payload: msgspec.Raw = to_raw(b"")


encode_step: Callable[[SavedStep], bytes] = msgspec.json.Encoder().encode
decode_step: Callable[[bytes], SavedStep] = msgspec.json.Decoder(SavedStep).decode


def saved_value(position: int, value: Struct, after_errors: tuple[str, ...] = ()) -> SavedStep:
    """A step that saves one of the structs of this module."""
    return SavedStep(position, msgspec.Raw(msgspec.json.encode(value)), after_errors=after_errors)


def read_value(step: SavedStep, kind: type[T]) -> T:
    """The struct that a step has saved."""
    return msgspec.json.decode(step.value, type=kind)


def last_taken(waits: Iterable[SavedStep]) -> dict[str, int]:
    """The number of the last signal that a task has taken, by counter. waits: its waits that are over."""
    last: dict[str, int] = {}
    for each in waits:
        taken = read_value(each, TakenSignal)
        last[taken.counter] = max(last.get(taken.counter, 0), taken.number)
    return last


def until_key(wait_key: str) -> str:
    """The key of a wait's start and deadline.

    >>> until_key("#wait:approved#1")
    '#until:approved#1'
    """
    return f"{UNTIL}{wait_key.removeprefix(WAIT)}"


def step_name(key: str) -> str:
    """The name of a key, as `ctx.changed` takes it; start and deadline of a wait go with the wait.

    >>> step_name("charge#2"), step_name("#until:approved#1")
    ('charge', '#wait:approved')
    """
    name = key.rpartition("#")[0]
    if name.startswith(UNTIL):
        return f"{WAIT}{name.removeprefix(UNTIL)}"
    return name
