"""Limits as an operator sees and changes them, at run time: theirs beat the code's, field by field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import EllipsisType

from msgspec.structs import replace

from onthedot.errors import ArgumentError, BadLimit
from onthedot.model.limits import AtMost, Rate, lane_key, lane_rule
from onthedot.operations.sources import read_reason
from onthedot.operations.task_queries import TaskQueries
from onthedot.schedules.definition import ScheduleDefinition
from onthedot.stores.contract import Limit, Store

_NAME = re.compile(r"@?[A-Za-z0-9_.:-]{1,200}(/[^/\x00-\x1f\x7f]{1,200})?")
_WEEK = 7 * 86_400_000


@dataclass(frozen=True)
class CodeDefinitions:
    """What this process's code says, where there is any: the command line has none."""

    limits: Callable[[], Iterable[Limit]] = tuple[Limit, ...]
    keep: Callable[[str], int] = lambda _: _WEEK  # ms that a cancelled task of a source stays
    most_kept: int = 1_000_000  # ended tasks
    plans: Mapping[str, ScheduleDefinition] = field(default_factory=dict[str, ScheduleDefinition])  # its schedules


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """A limit as it holds now. rate: starts (of a lane: costs) a second; changed: what the operator has set of it.

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


class LimitOperations(TaskQueries):
    def __init__(self, store: Store, code: CodeDefinitions) -> None:
        super().__init__(store)
        self._code = code

    async def limits(self) -> list[LimitInfo]:
        """All that say something, by name."""
        limits = await self._store.limits()
        infos = [_info(name, limits) for name in sorted({limit.name for limit in limits})]
        return [info for info in infos if info.paused or info.cap is not None or info.rate is not None]

    async def set_limit(
        self,
        name: str,
        key: str | None = None,
        *,
        cap: int | EllipsisType | None = ...,
        rate: str | EllipsisType | None = ...,
        burst: float | EllipsisType | None = ...,
    ) -> LimitInfo:
        """Changes a limit for all processes, at once; None gives a field back to the code, left out it stays.

        Of a new rate the burst is one second's worth unless said. What runs goes on, also beyond a lowered cap.
        """
        name, mine, known = await self._operators(name, key)
        changed, size = mine, None if isinstance(burst, EllipsisType) else burst
        if not isinstance(cap, EllipsisType):
            changed = replace(changed, cap=None if cap is None else AtMost(cap).n)
        if rate is None:
            changed = replace(changed, rate=None, burst=1)
        elif not isinstance(rate, EllipsisType):
            said = Rate(rate, burst=size)
            changed = replace(changed, rate=said.per_second, burst=said.capacity)
        elif size is not None:
            now = _info(name, known).rate
            if now is None:
                raise BadLimit(f"{name} has no rate, and a burst is one of a rate: say rate='10/s' as well")
            changed = replace(changed, rate=now, burst=Rate("1/s", burst=size).capacity)
        await self._store.put_limits([changed])
        return _info(name, [*(limit for limit in known if limit is not mine), changed])

    async def _operators(self, name: str, key: str | None) -> tuple[str, Limit, list[Limit]]:
        """The limit's full name, what the operator has said of it so far, and all that is known."""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or (key is not None and "/" in name):
            raise ArgumentError(
                f"{name!r} names no limit; write source, source/*, source/key, @lane, @lane/* or @lane/key"
            )
        stored = await self._store.limits()
        name = self._full_name(name, key, [*stored, *self._code.limits()])
        mine = next((limit for limit in stored if (limit.name, limit.owner) == (name, "operator")), None)
        return name, mine or Limit(name, owner="operator"), [*stored]

    def _full_name(self, name: str, key: str | None, known: list[Limit]) -> str:
        """A lane that nobody's code has is refused: the operator would believe that it is limited."""
        names = {
            limit.name for limit in known if limit.owner == "code" and not (limit.cap is None and limit.rate is None)
        }
        if key is None and "/" not in name:
            if name[0] != "@" or name in names:
                return name
            if f"{name}/*" in names:
                return f"{name}/*"
        head = name.partition("/")[0]
        if f"{head}/*" in names:
            return name if key is None else f"{head}/{lane_key(key)}"
        rule = lane_rule(known, head)
        if rule is not None and rule.lane != head:
            raise ArgumentError(f"the tasks of {head} go by the shared lane {rule.lane}: name that one instead")
        what = "is no lane that tasks share" if head[0] == "@" and head not in names else "has no limits by key"
        raise ArgumentError(f"{head} {what}, as far as the workers' code has told the store: limits=[AtMost(…, by=…)]")


def _info(name: str, limits: Iterable[Limit]) -> LimitInfo:
    by = {limit.owner: limit for limit in limits if limit.name == name}
    said = [limit for who in ("operator", "code") if (limit := by.get(who)) is not None]
    rated = next((limit for limit in said if limit.rate is not None), None)
    paused = next((limit for limit in said if limit.paused), None)
    mine = by.get("operator", Limit(name))
    set_by_operator = {"cap": mine.cap is not None, "rate": mine.rate is not None, "paused": mine.paused}
    return LimitInfo(
        name,
        next((limit.cap for limit in said if limit.cap is not None), None),
        None if rated is None else rated.rate,
        None if rated is None else rated.burst,
        paused is not None,
        "" if paused is None else read_reason(paused.reason)[0],
        tuple(what for what, is_set in set_by_operator.items() if is_set),
    )
