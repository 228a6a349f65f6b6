"""What somebody should look at: five checks over what a store answers, for `doctor` and for the monitor of a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass

from onthedot.errors import StoreError
from onthedot.operations.workers import WorkerInfo, worker_info
from onthedot.stores.capabilities import HasServerInfo, ServerInfo
from onthedot.stores.contract import State, Store

LATE = 60_000  # ms that a ready task may wait where nobody could take it
MOST_FAILED = 0.01  # of all that has ended by running
MOST_CROWDED = 2  # times the fleet's slots
MOST_OFF = 1_000  # ms between the clocks
MOST_FULL = 0.8  # of a server's memory
MEND_CLOCKS = "let the machines keep their time (timedatectl, chronyc tracking): due times and leases go by it"

_PAGE, _PAGES = 1000, 10  # how far is looked for what waits


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. ok=False: somebody should do something; `text` or the remedy says what."""

    ok: bool
    what: str
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """All that was looked at; true if nothing of it is wrong."""

    checks: tuple[Check, ...]

    def __bool__(self) -> bool:
        return all(check.ok for check in self.checks)


@dataclass(frozen=True)
class Vitals:
    """What the checks go by, all of one look."""

    now: float  # ms, by the clock of whoever looks
    tally: Mapping[tuple[str, State], int]
    workers: Sequence[WorkerInfo]
    unserved: Mapping[str, int]  # sources that no live worker knows: since when the longest of their ready tasks is due
    server: ServerInfo | None = None  # None: the store has no machine and no memory of its own


async def look(store: Store, now: float) -> Vitals:
    tally = await store.tally()
    sessions = await store.sessions()
    workers = [worker_info(name, info, 0) for name, info in sessions.items()]
    known = {source for worker in workers for source in worker.sources}
    ready = {source for (source, state), count in tally.items() if state == "ready" and count > 0}
    unserved = {source: await _longest(store, source, int(now)) for source in sorted(ready - known)}
    server = await store.server() if isinstance(store, HasServerInfo) else None
    return Vitals(now, tally, workers, unserved, server)


async def examine(looking: Awaitable[Vitals]) -> HealthReport:
    """Checks what a look brings; that it brings nothing is what is wrong then."""
    try:
        vitals = await looking
    except StoreError as error:
        return HealthReport((Check(False, "store", str(error)),))
    return HealthReport((Check(True, "store", "answers"), *checks(vitals)))


async def _longest(store: Store, source: str, now: int) -> int:
    """The oldest due time among the ready ones of a source; of very many, among the newest."""
    due, cursor = now, None
    for _ in range(_PAGES):
        page = await store.find({"source": source, "state": "ready"}, cursor, _PAGE)
        due, cursor = min([due, *(record.due for record in page.rows)]), page.after
        if cursor is None or due < now - LATE:
            break
    return due


def checks(vitals: Vitals, before: Vitals | None = None) -> list[Check]:
    """before: an earlier look; then failures are counted from there on."""
    found = [
        *unserved(vitals.unserved, vitals.now),
        crowded(vitals.tally, vitals.workers),
        failing(vitals.tally, None if before is None else before.tally),
    ]
    if vitals.server is not None:
        found += [clock(vitals.server, vitals.now), *memory(vitals.server)]
    return found


def unserved(since: Mapping[str, int], now: float) -> list[Check]:
    """Ready for more than a minute, and no live worker knows the source.

    >>> [check.text for check in unserved({"email": 0, "report": 50_000}, now=75_000)]
    ['ready for 75 s, and no live worker knows it: start one that does']
    """
    late = {source: now - due for source, due in since.items() if now - due > LATE}
    if not late:
        return [Check(True, "served", "nothing waits for a worker that is not there")]
    text = "ready for {:.0f} s, and no live worker knows it: start one that does"
    return [Check(False, source, text.format(waits / 1000)) for source, waits in late.items()]


def crowded(tally: Mapping[tuple[str, State], int], workers: Sequence[WorkerInfo]) -> Check:
    """More runs than all live workers could have: those of workers that are gone have not been taken over.

    >>> crowded({("email", "running"): 11}, [WorkerInfo("w1", concurrency={"async": 5})]).ok
    False
    """
    running = sum(count for (_, state), count in tally.items() if state == "running")
    slots = sum(slots for worker in workers for slots in worker.concurrency.values())
    text = f"{running} run on {slots} slots of {len(workers)} workers"
    if running <= MOST_CROWDED * slots:
        return Check(True, "running", text)
    return Check(False, "running", f"{text}: what dead workers held is not taken over; is a worker alive and well?")


def failing(tally: Mapping[tuple[str, State], int], before: Mapping[tuple[str, State], int] | None = None) -> Check:
    """More than one in a hundred runs failed for good. before: of those that have ended since.

    >>> failing({("email", "succeeded"): 97, ("email", "failed"): 3}).text
    '3 of 100 runs failed, most of them of email; see `onthedot failed`'
    """
    ended: Counter[tuple[str, State]] = Counter()
    for (source, state), count in tally.items():
        if state in ("succeeded", "failed"):
            # What was purged since then makes a count smaller, which says nothing about runs.
            ended[source, state] = max(0, count - (before or {}).get((source, state), 0))
    by_source = Counter({source: count for (source, state), count in ended.items() if state == "failed"})
    runs, failed = ended.total(), by_source.total()
    if not failed:
        return Check(True, "failures", f"none of {runs} runs failed")
    text = f"{failed} of {runs} runs failed, most of them of {by_source.most_common(1)[0][0]}; see `onthedot failed`"
    return Check(failed <= MOST_FAILED * runs, "failures", text)


def clock(server: ServerInfo, now: float) -> Check:
    """
    >>> clock(Server(now=10_000), now=12_500).text
    "this machine's clock is 2.5 s ahead of the store's: due times go by the store's; mend one of them"
    """
    off = now - server.now
    if abs(off) <= MOST_OFF:
        return Check(True, "clock", f"{abs(off):.0f} ms from the store's")
    text = f"this machine's clock is {abs(off) / 1000:.1f} s {'ahead of' if off > 0 else 'behind'} the store's"
    return Check(False, "clock", f"{text}: due times go by the store's; mend one of them", MEND_CLOCKS)


def memory(server: ServerInfo) -> list[Check]:
    """Nothing, where there is no limit.

    >>> memory(Server(now=0, memory=900, memory_limit=1000))[0].text
    '90 % of what the server may use; when it is full, nothing can be added'
    """
    if not server.memory_limit:
        return []
    full = server.memory / server.memory_limit
    text = f"{full:.0%} of what the server may use".replace("%", " %")
    if full <= MOST_FULL:
        return [Check(True, "memory", text)]
    remedy = "raise the server's maxmemory, keep ended tasks for a shorter time, or find what fills it: onthedot top"
    return [Check(False, "memory", f"{text}; when it is full, nothing can be added", remedy)]
