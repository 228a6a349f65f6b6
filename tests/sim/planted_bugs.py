"""Bugs that the simulation must find. Each is a wrapper or a subclass; the source has no switches for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onthedot.engine.worker import Worker
from onthedot.stores.contract import Store
from tests.sim.clock import SimClock

if TYPE_CHECKING:
    from tests.sim.scenario import Scenario


@dataclass(frozen=True)
class PlantedBug:
    """Parts of a scenario that a bug replaces.

    server: makes the store of the server
    client: wraps the store as a node reaches it
    """

    name: str
    server: Callable[[SimClock, float], Store | None] = lambda clock, lease: None
    client: Callable[[Any, Scenario], Any] = lambda store, scenario: store
    worker_factory: Callable[..., Worker] = Worker
    poll_interval: float | None = None


NO_BUG = PlantedBug("none")
