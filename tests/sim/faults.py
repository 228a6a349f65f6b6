"""Which faults happen: to calls and hints one by one, and to nodes over time. Every kind has its own stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.sim.ids import stream
from tests.sim.loop import SimLoop

CALL_KINDS = {"refused": 0.02, "reset": 0.015, "lost": 0.015, "late": 0.01}
"""Kinds of faults of a call, and how likely they are.

refused: not executed. reset, lost: executed, and the caller gets an error at once, or no reply. late: executed 4 to
12 s later, although the caller gave up after 4 s.
"""
HINT_KINDS = ("dropped", "doubled", "delayed")
NODE_KINDS = {"crash": 8.0, "pause": 8.0, "cut": 8.0, "mute": 12.0, "stop": 12.0, "clock": 10.0}
"""Kinds of faults of a node, and the mean number of seconds between two. mute: heartbeats get no reply."""
FILE_KINDS = {"abort": 8.0, "locked": 12.0, "slow": 12.0, "power": 15.0}
"""Kinds of faults of a node or of the machine, over a file.

abort: the process dies before one of its next statements. locked: another program holds the file. slow: an fsync takes
long. power: all processes die, and what was not synced may be lost.
"""
SERVER_KINDS = {"loss": 0.4, "older": 0.4}
"""Kinds of faults of a server, and how likely they are: its data are replaced by none, or by an older copy."""
KINDS = (*CALL_KINDS, *HINT_KINDS, *NODE_KINDS, *FILE_KINDS, *SERVER_KINDS)
OF_STORE = {
    "memory": frozenset({*CALL_KINDS, *HINT_KINDS, *NODE_KINDS, *SERVER_KINDS}),
    "sqlite": frozenset({*HINT_KINDS, "crash", "pause", "stop", *FILE_KINDS}),
}
"""The kinds that apply to each store. Processes of one machine share its clock, and no network is between them."""

_LATE = frozenset(
    "turn heartbeat add note cancel revive signal close_session fire put_schedules put_limits".split()  # noqa: SIM905
)
MAX_LATE = 12.0  # seconds
MAX_ROUND_TRIP = 0.1  # seconds that a request and its reply take at most, together
SHORT_ROUND_TRIP = 0.01  # the same with `--bursts`: tasks are claimed ahead between requests that follow each other


@dataclass(frozen=True)
class Fate:
    """The fault of one call: its kind, and the seconds that request and reply take."""

    kind: str
    request: float
    reply: float


@dataclass(frozen=True)
class NodeFault:
    kind: str
    at: float  # seconds after the start
    node: int
    size: float  # from 0 to 1


class Faults:
    """Draws from every stream for every call, also of kinds that are left out: so leaving one out changes no other."""

    def __init__(self, seed: int, loop: SimLoop, kinds: Sequence[str], max_round_trip: float = MAX_ROUND_TRIP) -> None:
        self._seed = seed
        self._max_round_trip = max_round_trip
        self._loop = loop
        self._kinds = frozenset(kinds)
        self._streams = {kind: stream(seed, kind) for kind in (*CALL_KINDS, *HINT_KINDS, "delays")}
        self._cut_until: dict[str, float] = {}
        self._mute_until: dict[str, float] = {}
        self.heartbeat_faults: dict[str, float] = {}  # by node: when one last failed
        self.active: bool = True

    def of_call(self, node: str, verb: str) -> Fate:
        delays = self._streams["delays"]
        request = delays.random() * self._max_round_trip / 2
        reply = delays.random() * self._max_round_trip / 2
        late_by = 4 + (MAX_LATE - 4) * delays.random()
        kind = "sent"
        for each, chance in CALL_KINDS.items():
            is_drawn = self._streams[each].random() < chance
            if is_drawn and self.active and each in self._kinds and (each != "late" or verb in _LATE):
                kind = each
        if verb == "heartbeat" and self._mute_until.get(node, 0) > self._loop.time():
            kind = "lost"
        if self.is_cut(node):
            kind = "refused"
            request = 4 * delays.random()
        if verb == "heartbeat" and kind != "sent":
            self.heartbeat_faults[node] = self._loop.time()
        return Fate(kind, late_by if kind == "late" else request, reply)

    def of_hint(self) -> Sequence[float]:
        """The delays with which a hint arrives: none if it is dropped, two if it is doubled."""
        draws = {kind: self._streams[kind].random() for kind in HINT_KINDS}
        dropped = 0.15 if self.active else 0.5
        if "dropped" in self._kinds and draws["dropped"] < dropped:
            return ()
        if not self.active:
            return (0.01,)
        if "doubled" in self._kinds and draws["doubled"] < 0.1:
            return (0.01, 0.2)
        if "delayed" in self._kinds and draws["delayed"] < 0.2:
            return (5 * draws["delayed"],)
        return (0.01,)

    def of_nodes(self, nodes: int, seconds: float) -> list[NodeFault]:
        """All faults of nodes, in order of time."""
        faults: list[NodeFault] = []
        for kind, interval in (NODE_KINDS | FILE_KINDS).items():
            chance = stream(self._seed, kind)
            at = chance.expovariate(1 / interval)
            while at < seconds:
                faults.append(NodeFault(kind, at, chance.randrange(nodes), chance.random()))
                at += chance.expovariate(1 / interval)
        for kind, likelihood in SERVER_KINDS.items():
            chance = stream(self._seed, kind)
            if chance.random() < likelihood:
                at = seconds * chance.uniform(0.85, 1)  # late: a node that starts again would declare everything
                faults.append(NodeFault(kind, at, chance.randrange(nodes), chance.random()))
        return sorted((fault for fault in faults if fault.kind in self._kinds), key=lambda fault: fault.at)

    def cut(self, node: str, seconds: float) -> None:
        self._cut_until[node] = self._loop.time() + seconds

    def mute(self, node: str, seconds: float) -> None:
        self._mute_until[node] = self._loop.time() + seconds

    def is_cut(self, node: str) -> bool:
        return self.active and self._cut_until.get(node, 0) > self._loop.time()

    def end(self) -> None:
        """Only slow replies and dropped hints remain."""
        self.active = False
        self._mute_until.clear()
