"""A move killed before and after every call: no task is lost, none runs twice, every window fires once."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.unit.operations.move_steps import CALLS, DIRECTIONS, WINDOW, Life, tried


@pytest.mark.parametrize("direction", DIRECTIONS, indirect=True)
async def test_moved_tasks_run_once(direction: str, tmp_path: Path) -> None:
    assert await tried(direction, tmp_path, Life()) > 20


async def test_window_that_is_due_at_any_call_of_a_move_fires_once(tmp_path: Path) -> None:
    for late in range(0, WINDOW, 50):
        await tried("memory-memory", tmp_path, Life(), late=late)


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_move_killed_at_any_call_is_finished_by_the_next(when: str, busy: bool, tmp_path: Path) -> None:
    calls = await tried("memory-memory", tmp_path, Life(), busy=busy)
    for number in range(1, calls + 1):
        await tried("memory-memory", tmp_path, Life(number, when), busy=busy)


@pytest.mark.parametrize(
    ("direction", "call"),
    [
        *product(DIRECTIONS[1:4], CALLS),
        *(("sqlite-postgres" if call.startswith("target") else "postgres-sqlite", call) for call in CALLS),
    ],
    indirect=["direction"],
)
async def test_move_killed_before_an_answer_is_finished_by_the_next(direction: str, call: str, tmp_path: Path) -> None:
    await tried(direction, tmp_path, Life(call, "after"))
