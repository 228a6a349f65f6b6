"""An agent under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.events.agent_steps import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    with bench.test:
        yield bench
