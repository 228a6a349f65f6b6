"""A signal as the task that waits for it gets it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal, as ``ctx.wait_any(…)`` returns it."""

    name: str
    """Its name."""
    payload: Any
    """The value that was sent with it."""
    at: datetime
    """When it was sent; aware, by the clock of the store."""
