"""The pictures in the documentation are what the scripts draw."""

from __future__ import annotations

import pytest

pytest.importorskip("benchmarks", reason="not in a source distribution")

from benchmarks.limits import PICTURE, aging_waits
from benchmarks.picture import aging_svg
from onthedot.declared import AGING


def test_aging() -> None:
    waits = aging_waits()
    assert waits == {priority: (10 - priority) * AGING for priority in range(1, 11)}
    assert PICTURE.read_text() == aging_svg(waits), "./dev bench limits --only aging draws it"
