"""Sources as an operator sees them: number of tasks, limits, pauses, workers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote

from onthedot.clock.epoch import from_optional_ms
from onthedot.model.outbox_names import is_outbox_limit
from onthedot.operations.run_times import RunTimes, run_times
from onthedot.operations.workers import WorkerInfo
from onthedot.stores.contract import Limit, State

_NO_DURATIONS: Mapping[str, Sequence[int]] = {}


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause. key: None is the whole source; since: None if it is not known."""

    key: str | None
    reason: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class SourceLimit:
    """A limit in force. name: the source, "source/*" for each key, "source/acme" for one."""

    name: str
    cap: int | None
    rate: float | None
    burst: float
    by: str


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """A source, or a lane that sources share ("@openai")."""

    name: str
    ready: int = 0
    parked: int = 0
    scheduled: int = 0
    running: int = 0
    waiting: int = 0  # for signals or other tasks
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    workers: int = 0  # live workers that know it
    run_times: RunTimes | None = None  # of its newest runs; None: not read, or none
    limits: tuple[SourceLimit, ...] = ()
    paused: Pause | None = None
    paused_keys: tuple[Pause, ...] = ()
    frozen: bool = False  # it accepts no new tasks
    degraded: bool = False  # its batches run in one part


def source_infos(
    tally: Mapping[tuple[str, State], int],
    limits: Sequence[Limit],
    workers: Sequence[WorkerInfo],
    durations: Mapping[str, Sequence[int]] = _NO_DURATIONS,
) -> list[SourceInfo]:
    """Return all sources that have tasks, limits or a worker, by name; shared lanes last. durations: ms of runs."""
    counts: defaultdict[str, Counter[State]] = defaultdict(Counter[State])
    for (source, state), number in tally.items():
        counts[source][state] = number
    own: defaultdict[str, list[Limit]] = defaultdict(list)
    for limit in limits:
        if is_outbox_limit(limit.name):
            continue  # `outbox status` has it
        own[limit.name.partition("/")[0]].append(limit)
    known = Counter(source for worker in workers for source in worker.sources)
    found: list[SourceInfo] = []
    for name in sorted({*counts, *own, *known}, key=lambda name: (name.startswith("@"), name)):
        pauses = [_pause(limit) for limit in own[name] if limit.paused]
        states = counts[name]
        found.append(
            SourceInfo(
                name,
                ready=states["ready"],
                parked=states["parked"],
                scheduled=states["scheduled"],
                running=states["running"],
                waiting=states["waiting"],
                succeeded=states["succeeded"],
                failed=states["failed"],
                cancelled=states["cancelled"],
                workers=known[name],
                run_times=run_times(durations.get(name, ())),
                limits=tuple(_in_force(own[name])),
                paused=next((pause for pause in pauses if pause.key is None), None),
                paused_keys=tuple(pause for pause in pauses if pause.key is not None),
                frozen=any(limit.name == name and limit.mode == "frozen" for limit in own[name]),
                degraded=any(limit.name == name and limit.mode == "degraded" for limit in own[name]),
            )
        )
    return found


def _in_force(limits: Iterable[Limit]) -> Iterable[SourceLimit]:
    """Field by field, the operator's limit overrides the code's; limits that are overridden are left out."""
    by_name: dict[str, list[Limit]] = {}
    for limit in sorted(limits, key=lambda limit: (limit.name, limit.owner == "code")):
        by_name.setdefault(limit.name, []).append(limit)
    for name, both in by_name.items():
        capped = next((limit for limit in both if limit.cap is not None), None)
        rated = next((limit for limit in both if limit.rate is not None), None)
        if capped is not None:
            yield SourceLimit(name, capped.cap, None, 1, capped.owner)
        if rated is not None:
            yield SourceLimit(name, None, rated.rate, rated.burst, rated.owner)


def _pause(limit: Limit) -> Pause:
    _, slash, key = limit.name.partition("/")
    return Pause(unquote(key) if slash else None, limit.reason, from_optional_ms(limit.paused_since))
