"""Settings of Hypothesis: every example is new, and almost all of them contain claims."""

from __future__ import annotations

import os
from types import FunctionType
from typing import Any

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS
from hypothesis.stateful import rule

# By default Hypothesis begins with the shortest examples and derives most others from earlier ones: few would be new.
# Under any other backend name its draws are used as they are. A seed still works, and failures are kept, shrunk and
# repeated as usual.
NEW = "new"
AVAILABLE_PROVIDERS[NEW] = AVAILABLE_PROVIDERS["hypothesis"]
EXAMPLES = int(os.environ.get("ONTHEDOT_EXAMPLES", "170"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=60,
    deadline=None,
    derandomize=False,
    backend=NEW,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
FEWER = settings(SETTINGS, max_examples=max(1, EXAMPLES // 6))  # threads, files and round trips are slow


class often:
    """Adds a rule several times under different names, so that it is drawn more often, and in almost every example.

    Hypothesis leaves out about half of the rules in each example, by the names of their functions.
    """

    def __init__(self, number: int, /, **arguments: st.SearchStrategy[Any]) -> None:
        self.number = number
        self.arguments = arguments

    def __call__(self, step: FunctionType) -> often:
        self.step = step
        return self

    def __set_name__(self, machine: type, name: str) -> None:
        for each in [name, *(f"{name}_{number}" for number in range(2, self.number + 1))]:
            step = FunctionType(self.step.__code__, self.step.__globals__, each)
            setattr(machine, each, rule(**self.arguments)(step))
