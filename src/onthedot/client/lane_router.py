"""Lanes of tasks that are added without their code."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from msgspec.structs import replace

from onthedot.clock.protocol import Clock
from onthedot.codec.untyped import decode_untyped
from onthedot.model.limits import LaneRule, lane_rule
from onthedot.stores.contract import Limit, NewTask, Store

_FRESH = 1_000.0  # ms for which rules are used without reading them again: a read costs half as much as an add


class LaneRouter:
    """Finds the lane of a remote task by the rule that its code, when it last ran, left in the store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._rules: dict[str, LaneRule | None] = {}  # by source
        self._read_at = -inf

    async def route(self, tasks: Sequence[NewTask]) -> list[NewTask]:
        now = self._clock.now()
        if now - self._read_at >= _FRESH:
            self._rules = _rules_of(await self._store.limits())
            self._read_at = now
        return [_with_lane(task, self._rules.get(task.source)) for task in tasks]


def route_by(limits: Sequence[Limit], tasks: Sequence[NewTask]) -> list[NewTask]:
    """The tasks with their lanes, by limits that were just read."""
    rules = _rules_of(limits)
    return [_with_lane(task, rules.get(task.source)) for task in tasks]


def _rules_of(limits: Sequence[Limit]) -> dict[str, LaneRule | None]:
    return {name: lane_rule(limits, name) for name in {limit.name for limit in limits}}


def _with_lane(task: NewTask, rule: LaneRule | None) -> NewTask:
    if rule is None:
        return task
    lane, cost = rule.of(task.source, decode_untyped(task.body)[0])
    return replace(task, lane=lane, policy=replace(task.policy, cost=cost))
