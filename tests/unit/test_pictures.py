"""The pictures in the documentation are what the scripts draw."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("benchmarks", reason="not in a source distribution")

from benchmarks.limits import aging_waits
from benchmarks.picture import AGING as PICTURE, DRAIN, DRAINED, aging_svg, drain_svg
from onthedot.definitions.new_task import AGING


def test_aging() -> None:
    waits = aging_waits()
    assert waits == {priority: (10 - priority) * AGING for priority in range(1, 11)}
    assert PICTURE.read_text() == aging_svg(waits), "./dev bench limits --only aging draws it"


def test_draining() -> None:
    """Drawn from the figures that stand beside it, of whole rounds."""
    said = json.loads(DRAINED.read_text())
    assert (said["scale"], said["rounds"] >= 3) == (1, True)
    assert DRAIN.read_text() == drain_svg(said["rows"]), "./dev bench drain draws it"
