"""Names of a flow: the uuids of its members and its counters. A uuid has none of ``# ! @``, so no two forms collide."""

from __future__ import annotations

import re
from hashlib import sha256

from onthedot.clock.durations import HOUR

MAX_MEMBERS = 100_000  # of one flow
_NUMBERS = (1 << 24) - 1
_MEMBER_NUMBER = re.compile("[0-9a-f]{6}")
MEMBER_KEEP = HOUR  # ms that members are kept at least: the last task needs their results

JOIN = "onthedot.join"  # the source of the task that collects the results of a group
RESUME = "onthedot.resume"  # the source of the task that waits for the events of a resume handle
STOP = "onthedot.stop"  # the source of the task that cancels the rest of a flow


class MemberUuids:
    """The uuids of a flow's members by number: a body names thousands of predecessors as one range.

    >>> MemberUuids("nightly").of(1)
    '2a3b62b5-3ddb-8f16-bb63-d22202000001'
    """

    def __init__(self, flow: str) -> None:
        base = int.from_bytes(sha256(flow.encode()).digest()[:16])
        base = base & ~(0xF << 76) | 8 << 76  # version 8
        base = base & ~(0b11 << 62) | 0b10 << 62
        text = f"{base >> 24 << 24:032x}"
        self._head = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:26]}"

    def of(self, number: int) -> str:
        return f"{self._head}{number:06x}"

    def number(self, uuid: str) -> int | None:
        """The number of a member; None: the uuid is not of this form.

        >>> MemberUuids("nightly").number("2a3b62b5-3ddb-8f16-bb63-d22202000001")
        1
        """
        number = uuid.removeprefix(self._head)
        if not _MEMBER_NUMBER.fullmatch(number):
            return None
        return int(number, 16)


def child_flow(parent: str, step: str, attempt: int) -> str:
    """The uuid of a flow that a task runs as a child; of no member, since its number is the largest."""
    return MemberUuids(f"{parent}~{step}~{attempt}").of(_NUMBERS)


def is_child_flow(uuid: str) -> bool:
    """Whether a task has run this flow as a child.

    >>> is_child_flow(child_flow("nightly", "#run:resize#1", 1)), is_child_flow(MemberUuids("nightly").of(1))
    (True, False)
    """
    return uuid.endswith(f"{_NUMBERS:06x}") and uuid[14:15] == "8"


def set_counter(flow: str, number: int) -> str:
    """Ends of one set of predecessors."""
    return f"{flow}#{number}"


def end_counter(flow: str) -> str:
    """The end of the last task."""
    return f"{flow}!"


def start_signal(flow: str) -> str:
    """Sent when all tasks of a large flow are added."""
    return f"{flow}@start"


def is_start_signal(counter: str) -> bool:
    return counter.endswith("@start")


def is_end_counter(counter: str) -> bool:
    return counter.endswith("!")


def counter_flow(counter: str) -> str | None:
    """The flow that a counter belongs to; None: it is the counter of a signal of the user's.

    >>> counter_flow("nightly#2"), counter_flow("nightly"), counter_flow("~approved")
    ('nightly', 'nightly', None)
    """
    if "~" in counter:
        return None
    return re.split("[#!@]", counter)[0]
