"""How a batch of details is split, which items are kept, and what is asked for again."""

from __future__ import annotations

from dataclasses import dataclass

from onthedot import BatchPolicy, Dedup, SizeTable

TYPES = ("character_name", "location_name", "item", "skill", "organization")
SIZES = SizeTable({"character_name": 20, "location_name": 20, "item": 16, "skill": 10, "organization": 10}, other=20)
DEDUP = Dedup(
    key="name",
    threshold={"character_name": 0.97, "location_name": 0.95, "item": 0.92, "skill": 0.92, "organization": 0.95},
    other=0.95,
)


@dataclass
class Item:
    """A detail of a story."""

    name: str
    text: str = ""


def policy(fallback: object = None) -> BatchPolicy:
    """fallback: the task that makes the whole batch in one call while the batch is degraded."""
    return BatchPolicy(split=SIZES, dedup=DEDUP, top_up=2, fallback=fallback)
