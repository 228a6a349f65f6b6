"""What the state machine draws. Tiny domains, so that keys, lanes, leases and moments collide all the time."""

from __future__ import annotations

from hypothesis import strategies as st

from onthedot.stores.contract import Limit, NewTask, Past, Policy, Pool

SOURCES = ("a", "b", "c")
STRAY = "c"  # known by some sessions only
LANES = ("a/1", "a/2", "@s")
LIMITS = ("@s", "@s", "a/*", *LANES, *SOURCES)
SCHEDULES = ("s1", "s2")
PAUSES = (None, 0.25, 1, 100, 250, 500, 1000, 5000)

policies = st.builds(
    Policy,
    boost=st.sampled_from([0, 0, 1, 1000]),
    cost=st.sampled_from([1, 1, 2]),
    clash=st.sampled_from(["keep", "replace"]),
    unique_for=st.sampled_from([None, None, 1000]),
    expires=st.sampled_from([None, None, 250, 1500]),
    max_crashes=st.sampled_from([3, 2, 1]),
)


@st.composite
def new_tasks(draw: st.DrawFn) -> NewTask:
    source = draw(st.sampled_from(("a", *SOURCES)))
    # A stray that leaves its lane lets in the next: whether in time for the same claim is each store's affair.
    lanes = (None,) if source == STRAY else (None, "@s", "@s", *LANES)
    return NewTask(
        draw(st.sampled_from(["", "", "", "0", "3"])),  # a new one, or one of the last: made out by the step
        source,
        draw(st.sampled_from([b"1", b"2"])),
        at=draw(st.sampled_from([None, None, None, -1000, 0, 250])),  # made absolute by the step
        after=draw(st.sampled_from([0, 0, 0, 1, 500])),
        lane=draw(st.sampled_from(lanes)),
        unique=draw(st.sampled_from([None, None, "k1", "k1", "k2"])),
        policy=draw(policies),
    )


def pasts() -> st.SearchStrategy[Past]:
    """Of tasks that come from elsewhere."""
    return st.builds(
        Past,
        st.sampled_from(["due", "crash", "lifted"]),
        retries=st.sampled_from([0, 0, 2]),
        crashes=st.sampled_from([0, 0, 1]),
        earlier=st.sampled_from([0, 3]),
        settled=st.just(9),
        session=st.just("elsewhere"),
        started=st.sampled_from([None, None, 5]),
        error=st.sampled_from([None, b"e0"]),
        hops=st.sampled_from([0, 0, 1, 5]),
    )


@st.composite
def asks(draw: st.DrawFn) -> tuple[list[Pool], int, frozenset[str] | None]:
    pools = []
    together: list[tuple[str, ...]] = draw(st.sampled_from([*[[SOURCES]] * 5, [("c", "b"), ("a",)], [("a", "b")], []]))
    for sources in together:
        room = {source: draw(st.sampled_from([4, 4, 2, 1, 0])) for source in sources}
        pools.append(Pool(draw(st.sampled_from([5, 5, 2, 1, 0])), room))
    known = draw(st.sampled_from([None] * 6 + [frozenset(SOURCES) - {STRAY}, frozenset(SOURCES)]))
    return pools, draw(st.sampled_from([1, 2, 2, 0])), known


# One rate and one burst: when a bucket notices that these change is each store's affair, too.
limits = st.builds(
    Limit,
    st.sampled_from(LIMITS),
    cap=st.sampled_from([1, 2, 1, 2, None, 0]),
    rate=st.sampled_from([None, None, 1.0]),
    burst=st.just(2),
    paused=st.sampled_from([False] * 9 + [True]),
    by=st.sampled_from(["code", "operator"]),
)
