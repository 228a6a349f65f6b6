"""Bulk actions of all processes, as the change feed of one of them reports them; with time made by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from onthedot.clock.manual import ManualClock
from onthedot.operations import Operations
from onthedot.operations.audit import AuditEntry, AuditRecord, AuditState
from onthedot.operations.feed_listener import FeedListener, Watch
from onthedot.stores.memory import MemoryStore
from tests.unit.operations.feed_shop import of_kind, waiting

QUIET = Watch(transitions=False)


class TwoServers:
    """This one has the feed; the other one runs the actions, so this one knows only what is in the audit."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        store = MemoryStore(self.clock)
        self.feed = Operations(store, "this", self.clock).feed
        self._audit = Operations(store, "other", self.clock).audit

    async def begin(self, action: str = "retry tasks", rate: float = 5) -> str:
        """Begin to change ten things; rate: 0: at once, as changes that are no bulk actions."""
        entry = AuditEntry(user="ana", role="operator", via="page", action=action, state="running", found=10, rate=rate)
        return await self._audit.begin(entry)

    async def note(self, action: str, done: int, state: AuditState = "running") -> None:
        await self._audit.update(action, lambda entry: replace(entry, done=done, state=state))

    async def step(self, ms: float = 0) -> None:
        """Time passes, and everything that is due happens."""
        while ms > 0:
            self.clock.advance(min(ms, 250))
            ms -= 250
            await self._settle()
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)


@asynccontextmanager
async def two_servers() -> AsyncIterator[TwoServers]:
    servers = TwoServers()
    try:
        yield servers
    finally:
        await servers.feed.close()


def progress(listener: FeedListener) -> Sequence[tuple[int, str]]:
    """(done, state) of the messages that wait."""
    records = [data for data in of_kind("bulk_action", waiting(listener)) if isinstance(data, AuditRecord)]
    return [(record.entry.done, record.entry.state) for record in records]


async def test_action_of_another_process_is_followed_from_its_begin_to_its_end() -> None:
    async with two_servers() as servers:
        listener = servers.feed.listen(QUIET)
        await servers.step()
        action = await servers.begin()
        await servers.step(2_000)
        assert progress(listener) == [(0, "running")]
        await servers.note(action, 4)
        await servers.step(750)
        assert progress(listener) == [(4, "running")]
        await servers.step(5_000)
        assert progress(listener) == []
        await servers.note(action, 10, "done")
        await servers.step(750)
        assert progress(listener) == [(10, "done")]
        await servers.step(5_000)
        assert progress(listener) == []


async def test_late_listener_learns_of_an_action_that_runs() -> None:
    async with two_servers() as servers:
        servers.feed.listen(QUIET)
        await servers.step()
        action = await servers.begin()
        await servers.note(action, 3)
        await servers.step(2_000)
        late = servers.feed.listen(QUIET)
        assert progress(late) == [(3, "running")]
        await servers.note(action, 5, "stopped")
        await servers.step(750)
        assert progress(late) == [(5, "stopped")]
        assert progress(servers.feed.listen(QUIET)) == []


async def test_action_that_ends_between_two_looks_is_reported_once() -> None:
    async with two_servers() as servers:
        listener = servers.feed.listen(QUIET)
        await servers.step()
        await servers.note(await servers.begin(), 10, "done")
        await servers.step(10_000)
        assert progress(listener) == [(10, "done")]


async def test_entry_of_a_dead_process_is_no_news_until_it_goes_on() -> None:
    """It stays running in the audit; nobody sees a bar that never moves."""
    async with two_servers() as servers:
        dead = await servers.begin()
        slow = await servers.begin("cancel tasks")
        await servers.step(60_000)
        listener = servers.feed.listen(QUIET)
        await servers.step(10_000)
        assert progress(listener) == []
        await servers.note(slow, 1)
        await servers.step(750)
        assert progress(listener) == [(1, "running")]
        await servers.step(700_000)
        await servers.note(dead, 2)
        await servers.step(10_000)
        assert progress(listener) == []  # silent for more than ten minutes: no longer read


async def test_action_with_slow_steps_is_followed_between_them() -> None:
    async with two_servers() as servers:
        listener = servers.feed.listen(QUIET)
        await servers.step()
        action = await servers.begin(rate=0.001)
        await servers.step(1_500_000)
        assert progress(listener) == [(0, "running")]
        await servers.note(action, 1)
        await servers.step(750)
        assert progress(listener) == [(1, "running")]


async def test_changes_that_are_no_bulk_actions_are_not_sent() -> None:
    async with two_servers() as servers:
        listener = servers.feed.listen(QUIET)
        await servers.step()
        await servers.begin("pause", rate=0)
        await servers.step(5_000)
        assert progress(listener) == []


async def test_actions_that_began_while_nobody_listened_are_no_news() -> None:
    async with two_servers() as servers:
        first = servers.feed.listen(QUIET)
        await servers.step()
        first.close()
        await servers.step(250)
        await servers.note(await servers.begin(), 10, "done")
        await servers.step(40_000)
        late = servers.feed.listen(QUIET)
        await servers.step(5_000)
        assert progress(late) == []
