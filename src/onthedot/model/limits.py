"""Limits on concurrency and rate: of a source, or of each lane."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from math import isfinite
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from onthedot.errors import BadLimit
from onthedot.stores.contract import Limit

_RATE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*/\s*([0-9]+(?:\.[0-9]+)?)?\s*([smhd])\s*")
_PERIODS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_UNSAFE = re.compile("[\x00-\x1f\x7f%/*\ud800-\udfff]")  # special in lane names, or not storable everywhere
_MAX_KEY = 200  # characters
_MISSING = object()


@dataclass(frozen=True)
class Rate:
    """At most so many starts in a time, in all processes together.

    In any window of w seconds there are at most ``burst + rate × w`` starts.

    Args:
        rate: starts per time, as in "10/s", "100/m", "5/2s", "1000/h", "3/d".
        by: name of an argument; each of its values has a rate of its own.
        burst: how many may start at once after a pause; by default one second's worth, at least 1.
        cost: how much of the rate one start takes: a number, or the name of the argument that holds it.
        name: tasks whose limits have the same name share one rate.

    >>> Rate("90/m", by="customer").per_second
    1.5
    >>> Rate("0/s")
    Traceback (most recent call last):
    onthedot.errors.BadLimit: rate '0/s' lets nothing through; to stop a source, pause it
    """

    rate: str
    by: str | None = None
    burst: float | None = None
    cost: float | str = 1
    name: str | None = None

    def __post_init__(self) -> None:
        _check_lane(self.by, self.name)
        if self.burst is not None:
            _number(self.burst, f"rate {self.rate!r}: burst")
        if isinstance(self.cost, str):
            _check_argument(self.cost, "cost")
        else:
            _check_cost(self.cost, self.capacity, f"rate {self.rate!r}")
        if self.cost != 1 and self.by is None and self.name is None:
            raise BadLimit(f"rate {self.rate!r}: cost={self.cost!r} needs a lane; pass by=… or name=… as well")

    @property
    def per_second(self) -> float:
        """The rate in tokens per second."""
        found = _RATE.fullmatch(self.rate) if isinstance(self.rate, str) else None
        if not found:
            raise BadLimit(
                f'rate {self.rate!r} cannot be read; write it as in "10/s", "100/m", "5/2s", "1000/h", "3/d"'
            )
        count = float(found[1])
        period = float(found[2] or 1) * _PERIODS[found[3]]
        if not count or not period:
            raise BadLimit(f"rate {self.rate!r} lets nothing through; to stop a source, pause it")
        return count / period

    @property
    def capacity(self) -> float:
        """The burst, given or by default."""
        if self.burst is None:
            return max(1.0, self.per_second)
        return float(self.burst)


def rate_text(per_second: float) -> str:
    """A rate as people write it: per the shortest unit that makes it a whole number, else one or more.

    >>> [rate_text(rate) for rate in (10, 100 / 60, 1.5, 1 / 3, 2 / 3600, 1 / 86_400, 3.14159)]
    ['10/s', '100/m', '90/m', '20/m', '2/h', '1/d', '3.14/s']
    """
    counts = [(per_second * seconds, unit) for unit, seconds in _PERIODS.items()]
    at_least_one = [each for each in counts if each[0] >= 0.999]
    integers = [each for each in at_least_one if abs(each[0] - round(each[0])) < 1e-9 * each[0]]
    count, unit = (integers or at_least_one or counts[-1:])[0]
    return f"{count:.3g}/{unit}" if count < 100 else f"{count:.0f}/{unit}"


@dataclass(frozen=True)
class AtMost:
    """At most so many tasks run at once, in all processes together.

    Args:
        n: how many, from 1.
        by: name of an argument; the limit is for each of its values.
        name: tasks whose limits have the same name share one limit.

    >>> AtMost(2, by="customer")
    AtMost(n=2, by='customer', name=None)
    """

    n: int
    by: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _check_lane(self.by, self.name)
        _check_cap(self.n, "AtMost")


class LaneRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the arguments of a call select its lane. It is stored, too, for callers that add without the code."""

    lane: str  # begins the lane's name: "source", or "@shared"
    by: str | None = None
    cost: float | str = 1
    most: float = 1  # the burst: a task that costs more could never start
    defaults: dict[str, Any] = {}

    def of(self, source: str, arguments: Mapping[str, object]) -> tuple[str, float]:
        """The lane of a call with these arguments, and its cost there."""
        cost = self.cost
        if isinstance(cost, str):
            value = self._value(source, cost, arguments, "cost")
            cost = _check_cost(value, self.most, f"{source}: argument {cost!r}", least=0)
        if self.by is None:
            return self.lane, float(cost)
        return f"{self.lane}/{lane_key(self._value(source, self.by, arguments, 'by'))}", float(cost)

    def _value(self, source: str, name: str, arguments: Mapping[str, object], what: str) -> object:
        value = arguments.get(name, self.defaults.get(name, _MISSING))
        if value is _MISSING:
            raise BadLimit(f"{source}: its limit has {what}={name!r}, but the call passes no {name!r}")
        return value

    def encoded(self, lane: str) -> bytes:
        """The rule to store, for this lane; defaults that cannot be keys or costs are left out."""
        defaults: dict[str, Any] = {}
        for name, value in self.defaults.items():
            if name == self.cost and isinstance(value, int | float):
                defaults[name] = value
            elif name == self.by and (text := _text(value)) is not None:
                defaults[name] = text
        return msgspec.json.encode(replace(self, lane=lane, defaults=defaults))


def lane_rule(limits: Iterable[Limit], source: str) -> LaneRule | None:
    """The stored lane rule of a source."""
    for limit in limits:
        if limit.name == source and limit.owner == "code" and limit.lane_rule is not None:
            return _decoded(limit.lane_rule)
    return None


def unreadable_lane_rules(limits: Iterable[Limit]) -> list[str]:
    """The names of the limits whose lane rule is of another version, or damaged."""
    rules = {limit.name: limit.lane_rule for limit in limits if limit.lane_rule is not None}
    return sorted(name for name, rule in rules.items() if _decoded(rule) is None)


def _decoded(rule: bytes) -> LaneRule | None:
    try:
        return msgspec.json.decode(rule, type=LaneRule)
    except msgspec.DecodeError:  # of another version
        return None


class LimitDefinitions:
    """All limits of one task, and the lanes of its calls.

    `parameters`: names of the function's parameters (None: not known). `defaults`: values of those left out.

    >>> limits = LimitDefinitions("report", concurrency=4, limits=[AtMost(2, by="customer")], parameters=("customer",))
    >>> [(limit.name, limit.cap) for limit in limits.records()]
    [('report', 4), ('report/*', 2)]
    >>> limits.lane({"customer": "acme"})
    ('report/acme', 1.0)
    """

    __slots__ = ("_records", "_rule", "source")

    def __init__(
        self,
        source: str,
        concurrency: int | None = None,
        rate_limit: str | Rate | None = None,
        limits: Sequence[Rate | AtMost] = (),
        parameters: Iterable[str] | None = None,
        defaults: Mapping[str, object] | None = None,
    ) -> None:
        self.source: str = source
        own, keyed = _split_by_lane(source, concurrency, rate_limit, limits)
        by, lane = _one_lane(source, keyed)
        cost: float | str = 1
        burst = 1.0
        for limit in keyed:
            if isinstance(limit, Rate):
                cost = limit.cost
                burst = limit.capacity
        if parameters is not None:
            _check_parameters(source, tuple(parameters), by, cost)
        self._records: list[Limit] = []
        self._rule: LaneRule | None = None
        if own:
            self._records.append(_record(source, own))
        if lane is not None:
            used = {name: value for name, value in (defaults or {}).items() if name in (by, cost)}
            self._rule = LaneRule(lane, by, cost, burst, used)
            self._records.append(_record(f"{lane}/*" if by else lane, keyed))

    def records(self) -> list[Limit]:
        """The limits as records, under the name of the source."""
        return list(self._records)

    def to_limits(self, name: str) -> list[Limit]:
        """The records to store under one of the task's names; the source's own record carries the lane rule."""
        records = [_renamed(limit, self.source, name) for limit in self._records]
        if self._rule is None:
            return records
        lane = name if self._rule.lane == self.source else self._rule.lane
        own = next((limit for limit in records if limit.name == name), Limit(name))
        return [replace(own, lane_rule=self._rule.encoded(lane)), *(limit for limit in records if limit.name != name)]

    @property
    def has_lanes(self) -> bool:
        """Whether its calls run in a lane."""
        return self._rule is not None

    def lane(self, arguments: Mapping[str, object]) -> tuple[str | None, float]:
        """The lane of a call with these arguments, and its cost there."""
        if self._rule is None:
            return None, 1.0
        return self._rule.of(self.source, arguments)


def check_shared_lanes(lanes: dict[str, Limit], source: str, limits: Iterable[Limit]) -> None:
    """Merges a source's limits of shared lanes into `lanes`, those of other sources; BadLimit if they differ."""
    for limit in limits:
        if limit.name[0] != "@":
            continue
        known = lanes.get(limit.name, limit)
        caps = {each.cap for each in (limit, known)} - {None}
        rates = {(each.rate, each.burst) for each in (limit, known) if each.rate is not None}
        if len(caps) > 1 or len(rates) > 1:
            raise BadLimit(
                f"{source}: the shared lane {limit.name} has {_limit_text(known)} elsewhere and {_limit_text(limit)} "
                "here; all tasks that share it must have the same"
            )
        lanes[limit.name] = merge_by_name([known, limit])[0]


def merge_by_name(limits: Iterable[Limit]) -> list[Limit]:
    """One record per name: of a shared lane, one task may declare the concurrency and another the rate."""
    merged: dict[str, Limit] = {}
    for limit in limits:
        known = merged.get(limit.name, limit)
        rated = limit if known.rate is None else known
        cap = limit.cap if known.cap is None else known.cap
        merged[limit.name] = replace(known, cap=cap, rate=rated.rate, burst=rated.burst)
    return list(merged.values())


def _limit_text(limit: Limit) -> str:
    parts: list[str] = []
    if limit.cap is not None:
        parts.append(f"at most {limit.cap}")
    if limit.rate is not None:
        parts.append(f"{limit.rate:g}/s with burst {limit.burst:g}")
    return " and ".join(parts)


def _renamed(limit: Limit, source: str, name: str) -> Limit:
    if name == source or limit.name[0] == "@":
        return limit
    return replace(limit, name=name + limit.name.removeprefix(source))


def lane_key(value: object) -> str:
    """A value as part of a lane's name: of bounded length, and different for different values of a type.

    >>> lane_key("acme"), lane_key(17), lane_key("a/b")
    ('acme', '17', 'a%2Fb')
    """
    text = _text(value)
    if text is None:
        raise BadLimit(f"a {type(value).__name__} cannot be the key of a limit; go by a text, number, date or uuid")
    safe = _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)
    if len(safe) > _MAX_KEY:
        # No other key contains "%~", since every % of a value is escaped.
        safe = f"{safe[:100]}%~{sha256(safe.encode()).hexdigest()[:40]}"
    return safe


def _text(value: object) -> str | None:
    """The text of a value; None if its type cannot be a key."""
    while isinstance(value, Enum):
        value = value.value
    match value:
        case str():
            return value
        case date() | time():
            return value.isoformat()
        case Decimal() | UUID() | PurePath():
            return str(value)
        case None | bool() | int() | float() | bytes():
            return repr(value)
        case _:
            return None


def _split_by_lane(
    source: str, concurrency: int | None, rate_limit: str | Rate | None, limits: Sequence[Rate | AtMost]
) -> tuple[list[Rate | AtMost], list[Rate | AtMost]]:
    """The source's own limits, and those of its lane."""
    found: list[Rate | AtMost] = []
    if concurrency is not None:
        _check_cap(concurrency, "concurrency")
        found.append(AtMost(concurrency))
    if rate_limit is not None:
        rate = rate_limit if isinstance(rate_limit, Rate) else Rate(rate_limit)
        found.append(rate)
        if rate.by or rate.name:
            raise BadLimit(f"{source}: rate_limit is for the whole source; put {rate_limit!r} into limits=[…]")
    for limit in limits:
        if not isinstance(limit, Rate | AtMost):
            raise BadLimit(f"{source}: limits has {limit!r}; it takes Rate(…) and AtMost(…)")
        found.append(limit)
    own = [limit for limit in found if limit.by is None and limit.name is None]
    return own, [limit for limit in found if limit not in own]


def _one_lane(source: str, keyed: Sequence[Rate | AtMost]) -> tuple[str | None, str | None]:
    """The argument that keys the lane, and the beginning of its name."""
    lanes = {(limit.by, limit.name): limit for limit in keyed}
    if len(lanes) > 1:
        raise BadLimit(
            f"{source}: limits on two lanes, {' and '.join(map(repr, lanes.values()))}; a task takes one lane"
        )
    if not lanes:
        return None, None
    ((by, name),) = lanes
    if name is None:
        return by, source
    return by, f"@{name}"


def _record(name: str, limits: Sequence[Rate | AtMost]) -> Limit:
    caps = [limit for limit in limits if isinstance(limit, AtMost)]
    rates = [limit for limit in limits if isinstance(limit, Rate)]
    for twice in (caps, rates):
        if len(twice) > 1:
            raise BadLimit(f"{name}: {twice[0]!r} and {twice[1]!r} limit the same thing; keep one")
    record = Limit(name)
    if caps:
        record = replace(record, cap=caps[0].n)
    if rates:
        record = replace(record, rate=rates[0].per_second, burst=rates[0].capacity)
    return record


def _check_parameters(source: str, parameters: Sequence[str], by: str | None, cost: float | str) -> None:
    for what, name in (("by", by), ("cost", cost)):
        if isinstance(name, str) and name not in parameters:
            raise BadLimit(f"{source}: {what}={name!r} is not a parameter; it takes {', '.join(parameters) or 'none'}")


def _check_lane(by: str | None, name: str | None) -> None:
    if by is not None:
        _check_argument(by, "by")
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise BadLimit(f"name {name!r}: the name of a lane has 1 to 200 of A-Z a-z 0-9 _ . : -")


def _check_argument(name: object, what: str) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise BadLimit(f"{what}={name!r} is not the name of an argument")


def _check_cap(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadLimit(f"{what}: {value!r} is out of range: a whole number from 1; to stop a source, pause it")


def _check_cost(value: object, burst: float, where: str, least: float = 1e-9) -> float:
    cost = _number(value, f"{where}: cost", least)
    if cost > burst:
        raise BadLimit(f"{where}: cost {value} is more than burst {burst:g}, so it could never start; raise burst")
    return cost


def _number(value: object, what: str, least: float = 1e-9) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadLimit(f"{what}: {value!r} is of type {type(value).__name__}, and must be a number")
    if not isfinite(value) or value < least:
        above = "above" if least else "from"
        raise BadLimit(f"{what}: {value!r} is out of range: a number {above} 0")
    return float(value)
