"""Limits and pauses at run time. The operator's override those of the code, field by field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType

from msgspec.structs import replace

from onthedot.clock.durations import WEEK
from onthedot.clock.protocol import Clock
from onthedot.codec.untyped import decode_untyped_result
from onthedot.errors import ArgumentError, BadLimit
from onthedot.model.limits import AtMost, Rate, lane_key, lane_rule
from onthedot.model.outbox_names import is_outbox_limit
from onthedot.operations.audit import Recorded
from onthedot.operations.operator_limits import OperatorLimits, not_paused, paused_now
from onthedot.schedules.definition import ScheduleDefinition
from onthedot.stores.contract import Limit, Store

_NAME = re.compile(r"@?[A-Za-z0-9_.:-]{1,200}(/[^/\x00-\x1f\x7f]{1,200})?")


@dataclass(frozen=True)
class CodeDefinitions:
    """The definitions in the code of this process. The command line has none."""

    limits: Callable[[], Iterable[Limit]] = tuple[Limit, ...]
    keep: Callable[[str], int] = lambda _: WEEK  # by source: ms that a cancelled task is kept
    most_kept: int = 1_000_000  # ended tasks
    schedules: Mapping[str, ScheduleDefinition] = field(default_factory=dict[str, ScheduleDefinition])
    result_decoder: Callable[[str], Callable[[bytes], object]] = lambda _: decode_untyped_result  # by source


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """A limit in force. rate: starts (of a lane: costs) per second; changed: the fields that the operator has set.

    name: "report" is the source, "report/*" each key of it, "report/acme" one of them; "@openai" a lane that sources
    share, "@openai/*" each key of that.
    """

    name: str
    cap: int | None = None
    rate: float | None = None
    burst: float | None = None
    paused: bool = False
    reason: str = ""
    changed: tuple[str, ...] = ()


class LimitOperations(Recorded):
    """Reads and changes the limits of sources, keys and shared lanes."""

    def __init__(self, store: Store, clock: Clock, code: CodeDefinitions) -> None:
        self._store = store
        self._records = OperatorLimits(store)
        self._clock = clock
        self._code = code

    async def stored(self) -> Sequence[Limit]:
        """Return the limits as they are stored, by name and owner."""
        return await self._store.limits()

    async def list(self) -> Sequence[LimitInfo]:
        """Return all limits in force, by name."""
        limits = await self._store.limits()
        names = sorted({limit.name for limit in limits if not is_outbox_limit(limit.name)})
        infos = [_info(name, limits) for name in names]
        return [info for info in infos if info.paused or info.cap is not None or info.rate is not None]

    async def set(
        self,
        name: str,
        key: str | None = None,
        *,
        cap: int | EllipsisType | None = ...,
        rate: str | EllipsisType | None = ...,
        burst: float | EllipsisType | None = ...,
    ) -> LimitInfo:
        """Change a limit for all processes, at once. Running tasks go on, also beyond a lowered cap.

        None removes the operator's value, so that the code's is in force again. The burst of a new rate is one second
        of it, unless given.
        """
        async with self._recorder.change("limit", _shown(name, key)) as note:
            stored = await self._store.limits()
            name = self._full_name(name, key, stored)
            code = [limit for limit in stored if limit.owner == "code"]

            def change(current: Limit) -> Limit:
                return _changed(current, code, cap, rate, burst)

            before = await self._records.change(name, change)
            note.changed = 1
        return _info(name, [*code, change(before)])

    async def pause(self, source: str, key: str | None = None, reason: str = "") -> bool:
        """Start no more tasks of a source, or of one key of it; running ones go on. Return if it was paused before."""
        async with self._recorder.change("pause", _shown(source, key), reason) as note:
            name = self._full_name(source, key, await self._store.limits())
            before = await self._records.change(name, lambda limit: paused_now(limit, reason, self._clock.now()))
            note.changed = int(not before.paused)
        return before.paused

    async def resume(self, source: str, key: str | None = None) -> bool:
        """End a pause. Return if it was paused before."""
        async with self._recorder.change("resume", _shown(source, key)) as note:
            name = self._full_name(source, key, await self._store.limits())
            before = await self._records.change(name, not_paused)
            note.changed = int(before.paused)
        return before.paused

    def _full_name(self, name: str, key: str | None, stored: Sequence[Limit]) -> str:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or (key is not None and "/" in name):
            raise ArgumentError(
                f"{name!r} names no limit; write source, source/*, source/key, @lane, @lane/* or @lane/key"
            )
        return _full_name(name, key, [*stored, *self._code.limits()])


def _shown(name: str, key: str | None) -> str:
    return f"{name}" if key is None else f"{name} for {key}"


def _changed(
    limit: Limit,
    code: Sequence[Limit],
    cap: int | EllipsisType | None,
    rate: str | EllipsisType | None,
    burst: float | EllipsisType | None,
) -> Limit:
    """The operator's record with new values; code: the limits of the code."""
    size = None if isinstance(burst, EllipsisType) else burst
    if cap is None:
        limit = replace(limit, cap=None)
    elif not isinstance(cap, EllipsisType):
        limit = replace(limit, cap=AtMost(cap).n)
    if rate is None:
        return replace(limit, rate=None, burst=1)
    if not isinstance(rate, EllipsisType):
        new_rate = Rate(rate, burst=size)
        return replace(limit, rate=new_rate.per_second, burst=new_rate.capacity)
    if size is not None:
        in_force = _info(limit.name, [*code, limit]).rate
        if in_force is None:
            raise BadLimit(f"{limit.name} has no rate, and a burst is one of a rate: give rate='10/s' as well")
        return replace(limit, rate=in_force, burst=Rate("1/s", burst=size).capacity)
    return limit


def _full_name(name: str, key: str | None, known: list[Limit]) -> str:
    """Refuse a lane that no code has: the operator would believe that it is limited."""
    names = {limit.name for limit in known if limit.owner == "code" and not (limit.cap is None and limit.rate is None)}
    if key is None and "/" not in name:
        if name[0] != "@" or name in names:
            return name
        if f"{name}/*" in names:
            return f"{name}/*"
    head = name.partition("/")[0]
    if f"{head}/*" in names:
        if key is None:
            return name
        return f"{head}/{lane_key(key)}"
    rule = lane_rule(known, head)
    if rule is not None and rule.lane != head:
        raise ArgumentError(f"the tasks of {head} go by the shared lane {rule.lane}: name that one instead")
    problem = "has no limits by key"
    if head[0] == "@" and head not in names:
        problem = "is no lane that tasks share"
    raise ArgumentError(f"{head} {problem} in the definitions that workers have stored: limits=[AtMost(…, by=…)]")


def _info(name: str, limits: Iterable[Limit]) -> LimitInfo:
    by_owner = {limit.owner: limit for limit in limits if limit.name == name}
    operator = by_owner.get("operator", Limit(name))
    both = [operator, by_owner.get("code", Limit(name))]
    paused = next((limit for limit in both if limit.paused), Limit(name))
    set_by_operator = {"cap": operator.cap is not None, "rate": operator.rate is not None, "paused": operator.paused}
    return LimitInfo(
        name,
        next((limit.cap for limit in both if limit.cap is not None), None),
        next((limit.rate for limit in both if limit.rate is not None), None),
        next((limit.burst for limit in both if limit.rate is not None), None),
        paused.paused,
        paused.reason,
        tuple(name for name, is_set in set_by_operator.items() if is_set),
    )
