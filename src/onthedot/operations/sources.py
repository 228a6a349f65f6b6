"""Sources, as an operator sees them: what waits, what limits it, who could run it, since when it is paused."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote

from onthedot.operations.workers import WorkerInfo
from onthedot.stores.contract import Limit, State

_SINCE = re.compile(r"(?P<reason>.*?) ?\(since (?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pause:
    """Who is held, why, and since when. key: None is the whole source; since: None, if nobody wrote it down."""

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
    """A source, or a lane that sources share ("@openai"), and what is known of it."""

    name: str
    ready: int = 0
    parked: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    workers: int = 0  # live ones that know it
    limits: tuple[SourceLimit, ...] = ()
    paused: Pause | None = None
    paused_keys: tuple[Pause, ...] = ()


def source_infos(
    tally: Mapping[tuple[str, State], int], limits: Sequence[Limit], workers: Sequence[WorkerInfo]
) -> list[SourceInfo]:
    """All that have tasks, limits or a worker, by name; shared lanes last."""
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (source, state), number in tally.items():
        counts[source][state] = number
    own: defaultdict[str, list[Limit]] = defaultdict(list)
    for limit in limits:
        own[limit.name.partition("/")[0]].append(limit)
    known = Counter(source for worker in workers for source in worker.sources)
    found: list[SourceInfo] = []
    for name in sorted({*counts, *own, *known}, key=lambda name: (name.startswith("@"), name)):
        pauses = [_pause(limit) for limit in own[name] if limit.paused]
        found.append(
            SourceInfo(
                name,
                **counts[name],
                workers=known[name],
                limits=tuple(_in_force(own[name])),
                paused=next((pause for pause in pauses if pause.key is None), None),
                paused_keys=tuple(pause for pause in pauses if pause.key is not None),
            )
        )
    return found


def _in_force(limits: Iterable[Limit]) -> Iterable[SourceLimit]:
    """Field by field the operator's stands before code's: what does not hold is not shown."""
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
    return Pause(unquote(key) if slash else None, *read_reason(limit.reason))


# -- A limit has a reason and no time: the time is the end of the reason, which any store keeps and any reader reads.


def written_reason(reason: str, before: Limit, now: datetime) -> str:
    """One that is paused already has been so since then, whatever the new reason.

    >>> written_reason("deploy", Limit("send"), datetime(2026, 11, 16, 3, tzinfo=UTC))
    'deploy (since 2026-11-16T03:00:00+00:00)'
    """
    since = read_reason(before.reason)[1] if before.paused else None
    at = (since or now).astimezone(UTC).isoformat(timespec="seconds")
    return f"{reason} (since {at})".lstrip()


def read_reason(text: str) -> tuple[str, datetime | None]:
    """
    >>> read_reason("deploy (since 2026-11-16T03:00:00+00:00)")
    ('deploy', datetime.datetime(2026, 11, 16, 3, 0, tzinfo=datetime.timezone.utc))
    """
    found = _SINCE.fullmatch(text)
    return (text, None) if found is None else (found["reason"], datetime.fromisoformat(found["at"]))
