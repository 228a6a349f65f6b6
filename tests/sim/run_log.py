"""Every start and end of a run, as the tasks see it, and the invariants of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from onthedot.model.flow_names import STOP
from tests.sim.clock import SimClock
from tests.sim.invariants import Report, StoreCheck


@dataclass(eq=False)
class RunStart:
    uuid: str
    source: str
    node: str
    fence: int
    at: float
    raised: bool = False


@dataclass(eq=False)
class RunLog:
    """Every start and end of a run, as the tasks see it."""

    now: Callable[[], float]  # seconds
    clock: SimClock  # the store's
    is_live: Callable[[str], bool]
    is_justified: Callable[[RunStart], bool]  # a fault explains why this run did not end its task
    check: StoreCheck
    report: Report
    slots: int  # of each node
    starts: dict[str, list[RunStart]] = field(default_factory=lambda: defaultdict(list))
    promised: dict[str, float] = field(default_factory=dict)  # uuid → the store's time in ms

    def __post_init__(self) -> None:
        self.ended_at: dict[str, float] = {}  # uuid → when its last run ended
        self._leases: set[tuple[str, int]] = set()
        self._forgotten_at = 0.0
        self._active: dict[str, list[RunStart]] = defaultdict(list)
        self._overlaps: dict[str, float | None] = {}  # uuid → since when two live nodes run it; None: they do not now

    def began(self, run: RunStart) -> None:
        is_forgotten = self.check.was_forgotten(run.uuid, run.fence)  # claimed before the store went back
        if not is_forgotten:
            self._check_lease(run)
        early = self.promised.get(run.uuid, 0) - self.clock.now()
        if early > 0.001:
            self.report("I9", f"{run.source} {run.uuid} started {early:.3f} ms early")
        earlier = self.starts[run.uuid]
        is_expected = not earlier or earlier[-1].raised or run.uuid in self.check.revived
        is_expected = is_expected or is_forgotten or self.check.was_forgotten(run.uuid, earlier[-1].fence)
        if not is_expected and not self.is_justified(earlier[-1]):
            self.report("I4", f"{run.source} {run.uuid} ran again on {run.node} without a fault: {earlier[-1]}")
        earlier.append(run)
        self._active[run.uuid].append(run)
        self._check_slots(run.node)
        if len(self._active[run.uuid]) > 1:
            self._overlaps.setdefault(run.uuid, None)

    def _check_slots(self, node: str) -> None:
        """The task that cancels the rest of a flow has slots of its own."""
        active = sum(run.node == node for runs in self._active.values() for run in runs if run.source != STOP)
        if active > self.slots:
            self.report("I5", f"{active} tasks run on {node}, which has {self.slots} slots")

    def _check_lease(self, run: RunStart) -> None:
        if (run.uuid, run.fence) in self._leases:
            self.report("I4", f"{run.source} {run.uuid}: the lease with fence {run.fence} began twice")
        self._leases.add((run.uuid, run.fence))
        is_over = run.fence != self.check.fence_of(run.uuid)
        is_explained = self.check.is_lost(run.uuid) or self.check.may_have_lapsed(run.uuid, run.fence)
        if is_over and not is_explained:
            self.report("I3", f"{run.source} {run.uuid} began on {run.node} under a lease that is over: {run.fence}")

    def ended(self, uuid: str, node: str, fence: int, *, raised: bool = False) -> None:
        """fence: of the lease now. A store that has gone back to an older state may have leased the run again."""
        self.ended_at[uuid] = self.now()
        active = self._active.pop(uuid, [])
        own = [run for run in active if run.node == node]
        ended = [run for run in own if run.fence == fence] or own[:1]
        for run in ended:
            run.raised = raised
        left = [run for run in active if run not in ended]
        if left:
            self._active[uuid] = left
        if len(left) < 2:
            self._overlaps.pop(uuid, None)

    def forget_leases(self) -> None:
        """The store has gone back to an older state: its fences are given out again."""
        self._leases.clear()
        self._forgotten_at = self.now()

    def forget(self, node: str) -> None:
        """The node has died: its runs never end."""
        for uuid in list(self._active):
            for run in self._active[uuid]:
                if run.node == node:
                    self.ended(uuid, node, run.fence)
                    break

    def check_overlaps(self) -> None:
        """No two live nodes run one task for more than a second."""
        for uuid, since in self._overlaps.items():
            known = [run for run in self._active[uuid] if run.at >= self._forgotten_at]
            known = [run for run in known if not self.check.was_forgotten(uuid, run.fence)]
            live = [run for run in known if self.is_live(run.node)]
            if len({run.node for run in live}) < 2:
                self._overlaps[uuid] = None
            elif since is None:
                self._overlaps[uuid] = self.now()
            elif self.now() - since > 1.0:
                self.report("I4", f"two live nodes run the same task for more than 1 s: {live}")
