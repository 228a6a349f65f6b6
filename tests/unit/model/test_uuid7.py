"""The uuids of new tasks."""

from __future__ import annotations

import uuid

from onthedot.model.uuid7 import new_uuid


def test_uuids_are_version_7_and_grow() -> None:
    made = [new_uuid() for _ in range(1000)]
    assert {uuid.UUID(each).version for each in made} == {7}
    assert {uuid.UUID(each).variant for each in made} == {uuid.RFC_4122}
    assert made == sorted(made)


def test_last_ten_characters_differ() -> None:
    made = [new_uuid() for _ in range(100_000)]
    assert len({each[-10:] for each in made}) == 100_000
