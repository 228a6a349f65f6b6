"""The base of the steps of the state machine: sessions, and tasks whose drawn values are resolved."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from onthedot.stores.contract import Links, NewTask, Wait
from tests.model.comparison import StorePair
from tests.model.strategies import LEASES


class Steps(StorePair):
    def __init__(self) -> None:
        super().__init__()
        self.sessions: list[str] = []
        self.numbers: dict[str, int] = {}
        self.uuids: list[str] = []
        self.flows: list[str] = []  # uuids of tasks, of which some may be added later

    def arrive(self) -> str:
        name = f"w{len(self.numbers)}"
        self.numbers[name] = 0
        self.sessions.append(name)
        self.same("heartbeat", name, b"", LEASES[len(self.numbers) % 3])
        return name

    def someone(self, which: int) -> str:
        return self.sessions[which % 2]

    def resolved(self, tasks: Sequence[NewTask]) -> list[NewTask]:
        """The drawn task with resolved uuid and times. The uuid of a dropped task is not used again."""
        made = []
        for task in tasks:
            unleased = [uuid for uuid, row in self.naive.rows.items() if row.lease is None]
            known = task.uuid and int(task.uuid) < len(unleased)
            uuid = unleased[-1 - int(task.uuid)] if known else self.new_uuid()
            at = None if task.at is None else int(self.clock.now()) + task.at
            made.append(replace(task, uuid=uuid, at=at, links=self.resolved_links(task.links, uuid)))
        return made

    def resolved_links(self, links: Links | None, uuid: str) -> Links | None:
        if links is None:
            return None
        waits = None if links.waits is None else self.resolved_wait(links.waits)
        return replace(links, flow=self.resolved_flow(links.flow, uuid), waits=waits)

    def resolved_flow(self, drawn: str | None, uuid: str) -> str | None:
        """own: it is the last task. A number: of one of the last flows, if there are that many."""
        if drawn == "own":
            self.flows.append(uuid)
            return uuid
        return self.flows[-1 - int(drawn)] if drawn is not None and int(drawn) < len(self.flows) else None

    def resolved_wait(self, wait: Wait) -> Wait:
        """Drawn values are relative to those of now."""
        counters = tuple((name, self.naive.counters([name])[0].value + more) for name, more in wait.counters)
        return replace(wait, counters=counters)

    def new_uuid(self) -> str:
        self.uuids.append(f"u{len(self.uuids):02}")
        return self.uuids[-1]

    def some(self, data: st.DataObject, *states: str) -> list[str]:
        """Uuids of tasks, in these states if there are any."""
        fitting = [uuid for uuid, row in self.naive.rows.items() if row.seen().state in states]
        names = st.sampled_from([*fitting * 3, *self.uuids[-3:], "nobody"])
        return data.draw(st.lists(names, min_size=1, max_size=3))
