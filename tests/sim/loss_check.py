"""Every worker reports lost data once: when a claim first shows it."""

from __future__ import annotations

from collections import Counter

from onthedot.engine.session import KnownIdentity
from onthedot.stores.contract import ClaimResult


class LossCheck:
    """Compares the claims that nodes have received with what their workers have reported."""

    def __init__(self) -> None:
        self._known: dict[str, KnownIdentity] = {}
        self._shown: Counter[str] = Counter()
        self._reported: Counter[str] = Counter()

    def received(self, node: str, claim: ClaimResult) -> None:
        """A claim has reached the worker of a node."""
        known = self._known.setdefault(node, KnownIdentity())
        self._shown[node] += known.observe(claim.identity, claim.fence) is not None

    def reported(self, node: str) -> None:
        """A worker has reported a loss."""
        self._reported[node] += 1

    def worker_ended(self, node: str) -> None:
        """The next worker of the node knows nothing of earlier claims."""
        self._known.pop(node, None)

    def differences(self) -> list[str]:
        nodes = sorted(self._shown.keys() | self._reported.keys())
        return [
            f"{node} was shown {self._shown[node]} losses of data, and has reported {self._reported[node]}"
            for node in nodes
            if self._shown[node] != self._reported[node]
        ]
