"""Who works on a store, as they say it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from onthedot.clock.epoch import from_ms


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A session that lives, and what it says of itself."""

    id: str
    host: str = ""
    pid: int = 0
    app: str = ""
    version: str = ""
    started: datetime | None = None
    concurrency: Mapping[str, int] = field(default_factory=dict[str, int])
    sources: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()  # those that its code declares
    running: int = 0
    max_retries: Mapping[str, int] = field(default_factory=dict[str, int])  # of sources that have any


def worker_info(name: str, info: bytes, running: int) -> WorkerInfo:
    try:
        said: dict[str, Any] = msgspec.json.decode(info) if info else {}
    except msgspec.DecodeError:  # another version's, or another program's
        said = {}
    started = said.get("started")
    return WorkerInfo(
        id=name,
        host=said.get("host", ""),
        pid=said.get("pid", 0),
        app=said.get("app", ""),
        version=said.get("version", ""),
        started=None if started is None else from_ms(started),
        concurrency=said.get("concurrency", {}),
        sources=tuple(said.get("sources", ())),
        schedules=tuple(said.get("schedules", ())),
        running=running,
        max_retries=said.get("max_retries", {}),
    )
