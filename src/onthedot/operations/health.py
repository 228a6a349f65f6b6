"""Five checks of a store and its workers, for `doctor` and for the monitor of a queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass

from onthedot.errors import StoreError
from onthedot.operations.store_state import StoreState, Tally
from onthedot.operations.workers import WorkerInfo, live_workers
from onthedot.stores.capabilities import HasServerInfo, ServerInfo, find_capability
from onthedot.stores.contract import State, Store

MAX_UNSERVED = 60_000  # ms that a ready task may wait without a worker that knows it
MAX_FAILED = 0.01  # share of the runs
MAX_CROWDED = 2  # running tasks per slot of all workers
MAX_CLOCK_OFFSET = 1_000  # ms
MAX_MEMORY = 0.8  # share of the server's limit
FIX_CLOCKS = "let the machines keep their time (timedatectl, chronyc tracking): due times and leases go by it"

PAGE = 100  # ready tasks of a source, the next to run first
_MAX_UNSERVED = 50  # sources, those with the most ready tasks: each is one read, and all may be without a worker


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. If it is not ok, `text` or `remedy` name what to do."""

    ok: bool
    what: str
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """All checks; true if all are ok."""

    checks: tuple[Check, ...]

    def __bool__(self) -> bool:
        return all(check.ok for check in self.checks)


@dataclass(frozen=True)
class Vitals:
    """The figures that the checks use, read at one time."""

    now: float  # ms, by the clock of this process
    tally: Tally
    workers: Sequence[WorkerInfo]
    unserved: Mapping[str, int]  # by source that no live worker knows, at most 50: due time of its oldest ready task
    server: ServerInfo | None = None  # None: the store has no server


async def read_vitals(store: Store, now: float, state: StoreState | None = None) -> Vitals:
    """state: of the store, as it was read a moment ago; None: what is needed of it is read."""
    tally = await store.tally() if state is None else state.tally
    workers = await live_workers(store) if state is None else state.workers
    known = {source for worker in workers for source in worker.sources}
    ready = {source for (source, each), count in tally.items() if each == "ready" and count > 0}
    unserved = sorted(ready - known, key=lambda source: -tally[source, "ready"])[:_MAX_UNSERVED]
    oldest, server = await asyncio.gather(
        asyncio.gather(*(_oldest_due(store, source, int(now)) for source in unserved)), server_info(store)
    )
    return Vitals(now, tally, workers, dict(zip(unserved, oldest, strict=True)), server)


async def server_info(store: Store) -> ServerInfo | None:
    """Return facts about the store's server; None if the store is part of this process."""
    server = find_capability(store, HasServerInfo)
    if server is None:
        return None
    return await server.server()


async def read_health(reading: Awaitable[Vitals]) -> HealthReport:
    """Check the vitals; a store that cannot be read is a failed check."""
    try:
        vitals = await reading
    except StoreError as error:
        return HealthReport((Check(False, "store", str(error)),))
    return HealthReport((Check(True, "store", "answers"), *check_vitals(vitals)))


async def _oldest_due(store: Store, source: str, now: int) -> int:
    """Return the oldest due time among the first ready tasks of a source."""
    page = await store.find({"source": source, "state": "ready"}, None, PAGE)
    return min([now, *(record.due for record in page.rows)])


def check_vitals(vitals: Vitals, before: Vitals | None = None) -> list[Check]:
    """before: earlier vitals; then only failures since then are counted."""
    found = [
        *check_served(vitals.unserved, vitals.now),
        check_running(vitals.tally, vitals.workers),
        check_failures(vitals.tally, None if before is None else before.tally),
    ]
    if vitals.server is not None:
        found += [check_clock(vitals.server, vitals.now), *check_memory(vitals.server)]
    return found


def check_served(since: Mapping[str, int], now: float) -> list[Check]:
    """Ready tasks that no live worker knows, for more than a minute.

    >>> [check.text for check in check_served({"email": 0, "report": 50_000}, now=75_000)]
    ['ready for 75 s, and no live worker knows it: start one that does']
    """
    late = {source: now - due for source, due in since.items() if now - due > MAX_UNSERVED}
    if not late:
        return [Check(True, "served", "nothing waits for a worker that is not there")]
    text = "ready for {:.0f} s, and no live worker knows it: start one that does"
    return [Check(False, source, text.format(waits / 1000)) for source, waits in late.items()]


def check_running(tally: Tally, workers: Sequence[WorkerInfo]) -> Check:
    """More running tasks than the live workers could have: those of dead workers have not been reaped.

    >>> check_running({("email", "running"): 11}, [WorkerInfo("w1", concurrency={"async": 5})]).ok
    False
    """
    running = sum(count for (_, state), count in tally.items() if state == "running")
    slots = sum(slots for worker in workers for slots in worker.concurrency.values())
    text = f"{running} run on {slots} slots of {len(workers)} workers"
    if running <= MAX_CROWDED * slots:
        return Check(True, "running", text)
    return Check(False, "running", f"{text}: what dead workers held is not reaped; is a worker alive?")


def check_failures(tally: Tally, before: Tally | None = None) -> Check:
    """More than one in a hundred runs have failed. before: count only runs that have ended since.

    >>> check_failures({("email", "succeeded"): 97, ("email", "failed"): 3}).text
    '3 of 100 runs failed, most of them of email; see `onthedot failed`'
    """
    ended: Counter[tuple[str, State]] = Counter()
    for (source, state), count in tally.items():
        if state in ("succeeded", "failed"):
            # Purged tasks make a count smaller, which says nothing about runs.
            ended[source, state] = max(0, count - (before or {}).get((source, state), 0))
    by_source = Counter({source: count for (source, state), count in ended.items() if state == "failed"})
    runs = ended.total()
    failed = by_source.total()
    if not failed:
        return Check(True, "failures", f"none of {runs} runs failed")
    text = f"{failed} of {runs} runs failed, most of them of {by_source.most_common(1)[0][0]}; see `onthedot failed`"
    return Check(failed <= MAX_FAILED * runs, "failures", text)


def check_clock(server: ServerInfo, now: float) -> Check:
    """
    >>> check_clock(ServerInfo(now=10_000), now=12_500).text
    "this machine's clock is 2.5 s ahead of the store's: due times go by the store's; fix one of them"
    """
    offset = now - server.now
    if abs(offset) <= MAX_CLOCK_OFFSET:
        return Check(True, "clock", f"{abs(offset):.0f} ms from the store's")
    text = f"this machine's clock is {abs(offset) / 1000:.1f} s {'ahead of' if offset > 0 else 'behind'} the store's"
    return Check(False, "clock", f"{text}: due times go by the store's; fix one of them", FIX_CLOCKS)


def check_memory(server: ServerInfo) -> list[Check]:
    """No check without a limit.

    >>> check_memory(ServerInfo(now=0, memory=900, memory_limit=1000))[0].text
    '90 % of what the server may use; when it is full, nothing can be added'
    """
    if not server.memory_limit:
        return []
    share = server.memory / server.memory_limit
    text = f"{share:.0%} of what the server may use".replace("%", " %")
    if share <= MAX_MEMORY:
        return [Check(True, "memory", text)]
    remedy = "raise the server's maxmemory, keep ended tasks for a shorter time, or find what fills it: onthedot top"
    return [Check(False, "memory", f"{text}; when it is full, nothing can be added", remedy)]
