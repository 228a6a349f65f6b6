"""Claims: free slots go out, leased tasks come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from onthedot.stores.contract.schedules import Schedule
from onthedot.stores.contract.tasks import Record

if TYPE_CHECKING:
    from onthedot.stores.contract.outcomes import Verdict

CHORES = 100  # the most chores that one turn hands out


class Lease(Struct, frozen=True, gc=False):
    """The right to settle one run. It ends with its session."""

    uuid: str
    fence: int
    session: str


class SlotPool(Struct, frozen=True):
    """Sources that share slots: taken by (rank, seq) over all, at most `capacity` of a source and `total` in all."""

    total: int
    capacity: Mapping[str, int]


class HandoffOffer(Struct, frozen=True):
    """An idle worker's invitation to lease new tasks to it in the call that adds them."""

    capacity: Mapping[str, int]  # how many tasks of one of these sources it takes at once
    valid_ms: float


class ClaimRequest(Struct, frozen=True):
    """At most one request per session is in flight.

    Repeating a number returns the tasks still leased under it and claims nothing new. A request with a number below
    the session's last was delivered late: it takes nothing and returns ``more=True``. Numbers grow by one, so a gap
    shows that the store went back to an older state and has lost outcomes of this session: the claim returns all tasks
    leased to the session, under a new fence, if there are any, and ``more=True``. A pool with ``total=0`` is legal: the
    turn still promotes, reaps, expires and reports due schedules. If the claim takes nothing, the store may lease tasks
    under the *next* number and send them as `Hint.handoff`; the offer allows it.
    """

    number: int  # from 1, one more after each answered request
    pools: Sequence[SlotPool]
    max_suspects: int = 1  # how many suspects may run in this session at once
    known_sources: frozenset[str] | None = None  # private store: ready tasks of other sources become chores ("stray")
    offer: HandoffOffer | None = None


class LeasedTasks(Struct, frozen=True):
    """The tasks of one claim."""

    fence: int  # the same for all of them
    tasks: Sequence[Record]


class StoreIdentity(Struct, frozen=True):
    """Detects lost data: another id means another data set, a lower fence an older state of the same."""

    id: str  # random, written with the first data of the app
    last_fence: int  # the highest that was given out


class ClaimResult(Struct, frozen=True):
    """The answer to a claim."""

    fence: int
    tasks: Sequence[Record]
    chores: Sequence[Record]  # to be ended without a run; history.reason gives the reason
    schedules: Sequence[Schedule]  # due now; to be answered with fire()
    idle: Mapping[str, float | None]  # requested sources without work: ms until worth asking again, None: on a hint
    woken: frozenset[str]  # sources that got ready tasks or capacity in this call
    next_in: float | None  # ms to the next alarm of any kind, with fractions; None: none is set
    more: bool  # a full batch was promoted or handed out: call again
    now: float = 0  # the store's time, in ms; schedules are judged by it
    identity: StoreIdentity | None = None  # None: a test's model, which keeps no identity


class TurnResult(Struct, frozen=True):
    """The answer to a turn: a verdict per outcome, and the claim."""

    verdicts: Sequence[Verdict]
    claim: ClaimResult | None = None  # None: nothing was requested, or the session is not alive
    alive: bool = True
