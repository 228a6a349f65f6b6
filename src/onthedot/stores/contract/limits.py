"""Limits: concurrency, rate and pause of a source or lane."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Limit(Struct, frozen=True):
    """One owner's limit of a source or lane.

    The name is "source", "source/*" (each key), "source/acme" (one key), "@openai" (a shared lane) or "@openai/*".
    Limits of code and of the operator are kept apart; field by field, the operator's wins where it is set. A lane's own
    record ("source/acme") wins over its star, also field by field. On a source the rate counts starts, on a lane costs.
    A task that costs more than the burst, which was larger when it was added, costs the burst.
    """

    name: str
    cap: int | None = None
    rate: float | None = None  # per second
    burst: float = 1
    paused: bool = False
    reason: str = ""  # the operator's words
    owner: Literal["code", "operator"] = "code"
    paused_since: int | None = None  # ms
    lane_rule: bytes | None = None  # code's, of a source: how the lane of a task follows from its arguments
    mode: Literal["", "frozen", "degraded"] = ""  # "" is not set; adders act on it, a store only keeps it
