"""Schedules: compare-and-set on rev, so that nobody needs a leader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from onthedot.stores.contract import FireRequest, NewTask, Schedule


class ScheduleTable:
    def __init__(self) -> None:
        self._by_name: dict[str, Schedule] = {}

    def put(self, new: Schedule) -> bool:
        old = self._by_name.get(new.name)
        if new.rev > 0:
            if old is None or old.rev != new.rev:
                return False
            self._by_name[new.name] = replace(new, rev=new.rev + 1)
        elif old is None:
            self._by_name[new.name] = replace(new, rev=1)
        elif not (new.definition_digest and new.definition_digest == old.definition_digest):
            self._by_name[new.name] = replace(
                old, rule=new.rule, definition_digest=new.definition_digest, next_at=new.next_at, rev=old.rev + 1
            )
        return True

    def fire(self, fire: FireRequest, add: Callable[[NewTask], bool]) -> bool:
        old = self._by_name.get(fire.name)
        if old is None or old.rev != fire.rev or old.paused:
            return False
        fresh = sum([add(task) for task in fire.tasks])
        self._by_name[fire.name] = replace(
            old,
            next_at=fire.next_at,
            rev=old.rev + 1,
            last_at=old.last_at if fire.last_at is None else fire.last_at,
            runs=old.runs + fresh,
        )
        return True

    def delete_schedules(self, names: Sequence[str]) -> None:
        for name in names:
            self._by_name.pop(name, None)

    def all(self) -> list[Schedule]:
        return list(self._by_name.values())

    def due(self, now: float) -> list[Schedule]:
        return [schedule for next_at, schedule in self._waiting() if next_at <= now]

    def next_after(self, now: float) -> float | None:
        return min((next_at for next_at, _ in self._waiting() if next_at > now), default=None)

    def _waiting(self) -> Iterator[tuple[int, Schedule]]:
        for schedule in self._by_name.values():
            if schedule.next_at is not None and not schedule.paused:
                yield schedule.next_at, schedule
