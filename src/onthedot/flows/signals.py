"""Signals: checked and encoded before anything is stored, and decoded for the task that takes them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from onthedot.clock.durations import DAY, Duration, to_duration_ms
from onthedot.codec.body import Caps, ResultNotEncodable, Undecodable
from onthedot.codec.result_codec import codec_of, payload_codec
from onthedot.errors import ArgumentError
from onthedot.model.counter_names import own_signal, shared_signal
from onthedot.model.uuid7 import new_uuid
from onthedot.model.value_errors import InvalidOption, SettingError
from onthedot.stores.contract import NewSignal

KEEP = timedelta(days=30)
_LEAST_KEEP = DAY  # ms
_CAPS = Caps(result=1 << 20)
_PATH = re.compile(r" - at `[^`]*`$")
_WITHOUT_VALUES = re.compile(r"(Expected `[^`]*`, got `[^`]*`|Object missing required field `[^`]*`)( - at `[^`]*`)?")


def new_signal(
    name: str, payload: object = None, signal_id: str | None = None, keep: Duration = KEEP, to: str | None = None
) -> NewSignal:
    """to: uuid of the task that it is addressed to; None: all tasks that wait under the name."""
    check_signal_name(name)
    if signal_id is None:
        signal_id = new_uuid()
    elif not is_signal_text(signal_id):
        raise InvalidOption(f"signal {name!r}: its id has 1 to 200 printable characters; not {signal_id!r}")
    keep_ms = to_duration_ms(keep, f"signal {name!r}: keep", SettingError)
    if keep_ms < _LEAST_KEEP:
        raise InvalidOption(f"signal {name!r}: keep must be 24 hours or more, so that late tasks get it; not {keep}")
    counter = shared_signal(name) if to is None else own_signal(to, name)
    return NewSignal(counter, signal_id, _encode(name, payload), keep_ms)


def check_signal_name(name: str) -> str:
    if not is_signal_text(name):
        raise InvalidOption(f"the name of a signal has 1 to 200 printable characters; not {name!r}")
    return name


def is_signal_text(text: object) -> bool:
    return isinstance(text, str) and 1 <= len(text) <= 200 and text.isprintable()


def _encode(name: str, payload: object) -> bytes:
    try:
        return payload_codec(payload).encode(payload, _CAPS, f"signal {name!r}")
    except ResultNotEncodable as error:
        raise ArgumentError(str(error).replace("the result", "the payload")) from None


class UnreadablePayload(ValueError):
    """The payload of a signal does not fit the type that a task expects.

    line: the message for a log, which shows path and types, but no value of the payload
    """

    def __init__(self, name: str, shown_type: str, problem: str) -> None:
        text = f"the payload of signal {name!r} cannot be read as {shown_type}"
        super().__init__(f"{text}: {problem}")
        path = _PATH.search(problem)
        if _WITHOUT_VALUES.fullmatch(problem):
            self.line: str = f"{text}: {problem}"
        elif path is not None:
            self.line = f"{text}: the value{path[0]} does not fit"
        else:
            self.line = text


def decode_payload(name: str, payload: bytes, kind: Any) -> Any:
    """The payload as a value of `kind`, an annotation. Raises UnreadablePayload."""
    codec = codec_of(kind)
    try:
        return codec.convert(payload)
    except Undecodable as error:
        shown = codec.text or "a value"
        raise UnreadablePayload(name, shown, str(error)) from error
