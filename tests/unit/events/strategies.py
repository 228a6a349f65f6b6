"""Events that Hypothesis makes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from onthedot.clock.epoch import from_ms
from onthedot.events import Event

labels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)
events = st.builds(
    Event[Any],
    type=st.sampled_from(["Shop.Order.Placed", "Shop.Order.Line.Sent"]),
    payload=st.dictionaries(st.text(), st.integers() | st.text() | st.none(), max_size=3),
    aggregate_id=labels,
    aggregate_type=st.none() | labels,
    key=st.none() | labels,
    correlation_id=st.none() | labels,
    causation_id=st.none() | labels,
    version=st.integers(1, 2**31 - 1),
    retries=st.integers(0, 2**31 - 1),
    priority=st.none() | st.integers(1, 10),
    id=st.none() | labels,
    occurred_at=st.integers(0, 7_258_118_400_000).map(from_ms),
    headers=st.dictionaries(st.from_regex(r"x-[A-Za-z0-9_.-]{1,20}", fullmatch=True), st.text(), max_size=3),
)
