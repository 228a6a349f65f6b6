"""Outcomes, as the script of a turn receives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, assert_never

import msgspec

from onthedot.stores.contract import Completed, Ended, Outcome, Requeued, Suspended
from onthedot.stores.redis.link_format import PackedWait, pack_wait
from onthedot.stores.redis.record_format import TaskGroup, encode, group_tasks, pack_tasks
from onthedot.stores.redis.uuid_format import pack_uuids


class OutcomeGroup(msgspec.Struct, array_like=True):
    """Consecutive outcomes that share claim, kind and times."""

    fence: int
    session: str
    state: str | None = None
    keep: int = 0
    keep_result: int | None = None
    after: float | None = None
    counted: bool = False
    reset_crashes: bool = False
    wait: PackedWait | None = None
    number: int = 1
    same_data: bool = False
    effects: list[TaskGroup] | None = None
    new_tasks: int = 0


class _Run(NamedTuple):
    group: OutcomeGroup
    uuids: list[str]
    data: list[bytes]
    new_tasks: list[bytes]


def pack_outcomes(outcomes: Sequence[Outcome], policies: dict[str, str]) -> tuple[bytes, list[bytes]]:
    """Groups, and their payloads: what a group shares is sent once."""
    runs = _runs(outcomes, policies)
    payloads: list[bytes] = []
    for group, uuids, data, new_tasks in runs:
        group.number = len(uuids)
        group.same_data = len(data) > 1 and data.count(data[0]) == len(data)
        payloads.append(pack_uuids(uuids))
        payloads += data[:1] if group.same_data else data
        payloads += new_tasks
    return encode([run.group for run in runs]) if runs else b"", payloads


def _runs(outcomes: Sequence[Outcome], policies: dict[str, str]) -> list[_Run]:
    runs: list[_Run] = []
    last: OutcomeGroup | None = None
    for outcome in outcomes:
        group = _group(outcome)
        data = _data(outcome)
        effects = outcome.effects
        if group == last and effects is None:
            runs[-1].uuids.append(outcome.lease.uuid)
            runs[-1].data.append(data)
            continue
        new_tasks: list[bytes] = []
        last = group
        if effects is not None:
            group.effects = group_tasks(effects.tasks, policies)
            group.new_tasks = len(effects.tasks)
            new_tasks = pack_tasks(effects.tasks)
            last = None
        runs.append(_Run(group, [outcome.lease.uuid], [data], new_tasks))
    return runs


def _group(outcome: Outcome) -> OutcomeGroup:
    """Of this outcome alone, without its effects."""
    lease = outcome.lease
    match outcome:
        case Completed():
            return OutcomeGroup(
                lease.fence, lease.session, state="succeeded", keep=outcome.keep, keep_result=outcome.keep_result
            )
        case Ended():
            return OutcomeGroup(lease.fence, lease.session, state=outcome.state, keep=outcome.keep)
        case Requeued():
            return OutcomeGroup(
                lease.fence,
                lease.session,
                after=outcome.after,
                counted=outcome.counted,
                reset_crashes=outcome.reset_crashes,
            )
        case Suspended():
            return OutcomeGroup(lease.fence, lease.session, reset_crashes=True, wait=pack_wait(outcome.wait))
        case _:
            assert_never(outcome)


def _data(outcome: Outcome) -> bytes:
    """Its result or its error."""
    match outcome:
        case Completed():
            return outcome.result
        case Ended() | Requeued():
            return outcome.error
        case Suspended():
            return b""
        case _:
            assert_never(outcome)
