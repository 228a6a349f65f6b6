"""Signals: messages under a name, kept in order, that waiting tasks wait for."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from onthedot.clock.durations import DAY

MAX_KEPT_SIGNALS = 1000  # per name


class NewSignal(Struct, frozen=True, gc=False):
    """A signal to be sent."""

    name: str  # of its counter, too
    id: str  # made by the caller before any I/O; repeated while it is kept, it changes nothing
    payload: bytes = b""
    keep: int = 30 * DAY  # ms; ≥ DAY


class StoredSignal(Struct, frozen=True, gc=False):
    """A signal that is kept."""

    number: int  # the value that it gave to the counter
    id: str
    payload: bytes


class SignalPage(Struct, frozen=True):
    """Signals under one name."""

    value: int  # of the counter, at the same moment: to wait for a later signal is to wait for value + 1
    signals: Sequence[StoredSignal]  # in order
