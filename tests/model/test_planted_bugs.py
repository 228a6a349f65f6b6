"""The state machine finds every planted bug of flows within its bound. One that finds none is broken."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from onthedot.stores.memory import MemoryStore
from onthedot.stores.memory.tables import MemoryTables
from tests.model.example_settings import SETTINGS
from tests.model.flow_bugs import BUGS
from tests.model.machine import Stores

pytestmark = [pytest.mark.once, pytest.mark.search, pytest.mark.timeout(300)]

BOUND = 40  # examples; most bugs are found in the first ten


class BuggyStore(MemoryStore):
    def __init__(self, clock: ManualClock, tables: type[MemoryTables]) -> None:
        super().__init__(clock)
        self._tables = tables("data", clock.wall_clock_jump)


def finds(tables: type[MemoryTables], examples: int = BOUND) -> bool:
    """Whether an example fails. The examples are the same in every run, and are not shrunk."""

    class Machine(Stores):
        def made(self) -> Store:
            return BuggyStore(self.clock, tables)

    bounded = settings(
        SETTINGS, max_examples=examples, derandomize=True, database=None, phases=(Phase.generate,), print_blob=False
    )
    try:
        run_state_machine_as_test(Machine, settings=bounded)
    except Exception:
        return True
    return False


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_found(bug: str) -> None:
    assert finds(BUGS[bug])


def test_store_without_a_bug_passes() -> None:
    assert not finds(MemoryTables, 10)
