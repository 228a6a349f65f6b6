"""Workers of a store, as their sessions describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from onthedot.clock.epoch import from_optional_ms
from onthedot.errors import StoreRefused
from onthedot.stores.contract import Store


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that a worker runs."""

    uuid: str
    source: str
    label: str
    started: datetime | None


@dataclass(frozen=True, slots=True)
class LostTasks:
    """The tasks of a worker that died, by what became of them.

    failed: by the limit of crashes; held: not released yet, since its lease is not over or no worker lives
    """

    requeued: int = 0
    failed: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A live session and its description of itself; or one that died, as far as it is known.

    seen, done_per_minute, done, rss, loop_lag, clock_offset: from what it writes every ten seconds while it works, and
    every minute while it is idle. done: tasks that ended in each of the last ten minutes.
    """

    id: str
    host: str = ""
    pid: int = 0
    app: str = ""
    version: str = ""
    release: str = ""  # of its code: $ONTHEDOT_RELEASE
    started: datetime | None = None
    concurrency: Mapping[str, int] = field(default_factory=dict[str, int])
    sources: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()  # declared by its code
    running: int = 0
    max_retries: Mapping[str, int] = field(default_factory=dict[str, int])  # by source, where it is not 0
    format: int = 1  # of its session; see SESSION_FORMAT
    agent_keep: Mapping[str, int] = field(default_factory=dict[str, int])  # ms, by source, of agents
    max_kept: int | None = None  # ended tasks that it lets the store keep; None: of an older version
    data_lost: datetime | None = None  # when it found that the store had lost data, or went back to an older state
    longest: tuple[RunningTask, ...] = ()  # those of its tasks that have been running longest
    alive: bool = True
    seen: datetime | None = None  # when it wrote its figures last
    done_per_minute: float | None = None
    done: tuple[int, ...] = ()
    rss: int | None = None  # bytes of resident memory
    loop_lag: float | None = None  # ms by which its event loop is late, p99 of a minute
    clock_offset: float | None = None  # ms by which its clock is ahead of the store's
    lost: LostTasks | None = None  # of one that died


@dataclass(frozen=True, slots=True)
class ComponentInfo:
    """A live session of components: it relays or receives events, and runs no tasks."""

    id: str
    component: str  # "relay" or "subscriptions"
    host: str = ""
    pid: int = 0
    version: str = ""
    started: datetime | None = None
    bus: str = ""  # as people read it
    figures_at: int = 0  # ms, by its clock
    sent_per_minute: Mapping[str, int] = field(default_factory=dict[str, int])  # by topic, at that time


async def live_workers(store: Store) -> list[WorkerInfo]:
    """The oldest first; `running` is not filled in."""
    return worker_infos(await store.sessions())


async def live_components(store: Store) -> list[ComponentInfo]:
    """The oldest first."""
    return component_infos(await store.sessions())


def worker_infos(sessions: Mapping[str, bytes]) -> list[WorkerInfo]:
    """The workers of these sessions, the oldest first; `running` is not filled in."""
    described = [(name, _facts(info)) for name, info in sorted(sessions.items())]
    return [_worker_info(name, facts) for name, facts in described if "component" not in facts]


def component_infos(sessions: Mapping[str, bytes]) -> list[ComponentInfo]:
    """The sessions that run no tasks, the oldest first."""
    described = [(name, _facts(info)) for name, info in sorted(sessions.items())]
    return [
        ComponentInfo(
            id=name,
            component=facts["component"],
            host=facts.get("host", ""),
            pid=facts.get("pid", 0),
            version=facts.get("version", ""),
            started=from_optional_ms(facts.get("started")),
            bus=facts.get("bus", ""),
            figures_at=facts.get("figures_at", 0),
            sent_per_minute=facts.get("sent_per_minute", {}),
        )
        for name, facts in described
        if "component" in facts
    ]


async def check_bus(store: Store, shown: str) -> None:
    """Refuse a bus that is not the one of the live relays: no bus would have all events. shown: as people read it."""
    for other in await live_components(store):
        if other.component == "relay" and other.bus not in ("", shown):
            raise StoreRefused(
                f"the relay on {other.host} (pid {other.pid}) sends to {other.bus}, and not to {shown}: name the same "
                "bus by --bus"
            )


async def unreadable_sessions(store: Store) -> list[str]:
    """The live sessions whose description of themselves is of another version or program, or damaged."""
    return sorted(name for name, info in (await store.sessions()).items() if _decoded(info) is None)


def _facts(info: bytes) -> dict[str, Any]:
    return _decoded(info) or {}


def _decoded(info: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(info or b"{}", type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _worker_info(name: str, facts: Mapping[str, Any]) -> WorkerInfo:
    return WorkerInfo(
        id=name,
        host=facts.get("host", ""),
        pid=facts.get("pid", 0),
        app=facts.get("app", ""),
        version=facts.get("version", ""),
        release=facts.get("release", ""),
        started=from_optional_ms(facts.get("started")),
        concurrency=facts.get("concurrency", {}),
        sources=tuple(facts.get("sources", ())),
        schedules=tuple(facts.get("schedules", ())),
        max_retries=facts.get("max_retries", {}),
        format=facts.get("format", 1),
        agent_keep=facts.get("agent_keep", {}),
        max_kept=facts.get("max_kept"),
        data_lost=from_optional_ms(facts.get("data_lost")),
    )
