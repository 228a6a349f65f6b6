"""Moving between stores, killed before and after every single call: none lost, none twice, every window once."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.unit.operations.move_steps import CALLS, WAYS, WINDOW, Life, tried


@pytest.mark.parametrize("way", WAYS, indirect=True)
async def test_everything_runs_once(way: str, tmp_path: Path) -> None:
    assert await tried(way, tmp_path, Life()) > 20


async def test_a_window_may_come_at_every_call(tmp_path: Path) -> None:
    for late in range(0, WINDOW, 50):
        await tried("memory-memory", tmp_path, Life(), late=late)


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_every_call(when: str, busy: bool, tmp_path: Path) -> None:
    calls = await tried("memory-memory", tmp_path, Life(), busy=busy)
    for number in range(1, calls + 1):
        await tried("memory-memory", tmp_path, Life(number, when), busy=busy)


@pytest.mark.parametrize(
    ("way", "call"),
    [
        *product(WAYS[1:4], CALLS),
        *(("sqlite-postgres" if call.startswith("target") else "postgres-sqlite", call) for call in CALLS),
    ],
    indirect=["way"],
)
async def test_killed_before_the_answer(way: str, call: str, tmp_path: Path) -> None:
    await tried(way, tmp_path, Life(call, "after"))
