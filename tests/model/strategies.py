"""Strategies of the state machine. The domains are tiny, so that keys, lanes, leases and times collide often.

Most tasks are plain. An example has dozens of tasks, so a rare property of a task is common in an example. If all of
them expired, shared a key and were suspects, nothing would start.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from hypothesis import strategies as st

from onthedot.stores.contract import History, Limit, Links, NewTask, Policy, SlotPool, Wait

SOURCES = ("a", "b", "c")
STRAY = "c"  # known to some sessions only
LANES = ("a/1", "a/2", "@s")
SCHEDULES = ("s1", "s2")
COUNTERS = ("f", "g")
SIGNALS = ("~s", "~t")
PAUSES = (None, 0.25, 1, 100, 250, 500, 1000, 5000)
LEASES = (60_000, 60_000, 2000, 1000)


def each(*fields: Sequence[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """One value of each sequence in a single draw, because the draws take longer than the calls of the memory store.

    The first value is the simplest; a repeated value is drawn more often.
    """
    return st.sampled_from(list(product(*fields)))


policies = each(
    (0, 0, 0, 1, 1000),  # boost
    (1, 1, 2),  # cost
    ("keep", "replace"),  # on_conflict
    (None, None, 1000),  # unique_for
    (None, None, None, 250, 1500),  # expires
    (3, 3, 2, 1),  # max_crashes
).map(lambda p: Policy(boost=p[0], cost=p[1], on_conflict=p[2], unique_for=p[3], expires=p[4], max_crashes=p[5]))
keys = (None, None, None, "k1", "k1", "k2")
# A stray that leaves its lane admits the next task. Stores may do so before or after the claim.
places = st.sampled_from([
    *product(("a", "a", "b"), (None, "@s", "@s", *LANES), keys),
    *product((STRAY,) * 6, (None,), keys),
])  # fmt: skip
contents = each(
    ("", "", "", "", "", "", "0", "3"),  # uuid: a new one, or one of the last; resolved by the step
    (b"1", b"2"),  # body
    (None, None, None, -1000, 0, 250),  # at: resolved by the step
    (0, 0, 0, 1, 500),  # after
)


awaited = [(name, more) for name in (*COUNTERS, *COUNTERS, *SIGNALS) for more in (1, 1, 2, 0)]  # more than it has now
waits = each(
    [*((first,) for first in awaited), *product(awaited[::3], awaited[1::3])],  # counters
    (None, None, 500, 1500),  # timeout
    (0, 0, 250),  # delay
    ("any", "success", "failure"),  # requires
).map(lambda p: Wait(p[0], p[1], p[2], p[3]))
increments = ((), ("f",), ("f",), ("g",), ("f", "g"))


flows = (None, None, "0", "0", "1", "own")  # resolved by the step: the last flow, the one before, or a flow of its own


@st.composite
def links(draw: st.DrawFn) -> Links | None:
    kind = draw(st.sampled_from(["none", "none", "none", "none", "ends", "ends", "waits"]))
    if kind == "none":
        return None
    flow, counted = draw(each(flows, increments))
    return Links(flow, counted, draw(waits) if kind == "waits" else None)


@st.composite
def new_tasks(draw: st.DrawFn) -> NewTask:
    (source, lane, unique) = draw(places)
    (uuid, body, at, after) = draw(contents)
    return NewTask(uuid, source, body, at, after, lane, unique, draw(policies), draw(links()))


def histories() -> st.SearchStrategy[History]:
    """Histories of tasks from other stores."""
    return st.builds(
        History,
        st.sampled_from(["due", "crash", "lifted"]),
        retries=st.sampled_from([0, 0, 2]),
        crashes=st.sampled_from([0, 0, 1]),
        earlier=st.sampled_from([0, 3]),
        settled_fence=st.just(9),
        session=st.just("elsewhere"),
        started=st.sampled_from([None, None, 5]),
        error=st.sampled_from([None, b"e0"]),
        hops=st.sampled_from([0, 0, 1, 5]),
        revives=st.sampled_from([0, 0, 2]),
    )


rooms = (4, 4, 4, 2, 1, 0)
pools = each((5, 5, 5, 2, 1, 0), rooms, rooms, rooms)  # total, and capacity of each source
requested = each(
    (*[(SOURCES,)] * 5, (("c", "b"), ("a",)), (("a", "b"),), ()),  # one pool for all sources
    (1, 2, 2, 0),  # suspects
    (*[None] * 6, frozenset(SOURCES) - {STRAY}, frozenset(SOURCES)),  # known
)


@st.composite
def claim_requests(draw: st.DrawFn) -> tuple[list[SlotPool], int, frozenset[str] | None]:
    together, suspects, known = draw(requested)
    made = []
    for sources in together:
        total, *capacity = draw(pools)
        made.append(SlotPool(total, dict(zip(sources, capacity, strict=False))))
    return made, suspects, known


outcomes = each(
    ("done", "failed", "cancelled", "retry", "snooze", "release", "suspend", "sleep"),
    (0, 500, 5000),  # keep
    (0, 0, 1, 500),  # after
    (b"", b"e1", b"e2"),  # error
    (False, False, False, False, False, True),  # adds something
)
# One rate and one burst, because stores may notice a change of them at different times.
caps = (1, 2, 1, 2, None, None, None, 0)
paused = (*[False] * 9, True)
by = ("code", "operator")
limits = st.sampled_from([
    *product(("@s", "@s", "a/*", *LANES), caps, (None, None, 1.0, 1.0), paused, by),
    *product(SOURCES, caps, (None, None, None, 1.0), paused, by),  # a rate here would let hardly any task start
]).map(lambda p: Limit(p[0], cap=p[1], rate=p[2], burst=2, paused=p[3], owner=p[4]))  # fmt: skip
