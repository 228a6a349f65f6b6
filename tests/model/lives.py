"""How lives are made: each is a new one, and somebody claims in almost all of them."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS
from hypothesis.stateful import rule

# Of its own accord Hypothesis begins with the shortest lives, and makes five of six from one that was there, with a few
# steps copied: few lives would be new. Under any other name its own draws are taken as they come. A seed still holds,
# and what fails is kept, shrunk and repeated as ever.
NEW = "new"
AVAILABLE_PROVIDERS[NEW] = AVAILABLE_PROVIDERS["hypothesis"]


class often:
    """A rule that is several, of different names: it comes more often than others, and in almost every life.

    Hypothesis leaves out rules, a different lot in each life and half of them on the whole, by the names of their
    functions.
    """

    def __init__(self, number: int, /, **arguments: st.SearchStrategy[Any]) -> None:
        self.number, self.arguments = number, arguments

    def __call__(self, step: FunctionType) -> often:
        self.step = step
        return self

    def __set_name__(self, machine: type, name: str) -> None:
        for each in [name, *(f"{name}_{number}" for number in range(2, self.number + 1))]:
            step = FunctionType(self.step.__code__, self.step.__globals__, each)
            setattr(machine, each, rule(**self.arguments)(step))
