"""Names of counters. `~` cannot occur in a uuid, so no two forms collide."""

from __future__ import annotations

_SIGNAL = "~"


def shared_signal(name: str) -> str:
    """The counter of the signals that ``app.signal`` sends.

    >>> shared_signal("approved")
    '~approved'
    """
    return f"{_SIGNAL}{name}"


def own_signal(uuid: str, name: str) -> str:
    """The counter of the signals that ``handle.signal`` sends to one task.

    >>> own_signal("0193", "approved")
    '0193~approved'
    """
    return f"{uuid}{_SIGNAL}{name}"


def signal_name(counter: str) -> str | None:
    """The name of the signals that raise a counter; None: it counts ends of tasks.

    >>> signal_name("0193~approved"), signal_name("0193#1")
    ('approved', None)
    """
    _, found, name = counter.partition(_SIGNAL)
    return name if found else None
