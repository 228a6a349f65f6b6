"""A ratchet: past these sizes, something has two jobs. Lower the figures where there is room (docs/adr/0008)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "onthedot"
FILE, FUNCTION = 450, 60  # lines
ROOMS = {  # the folder a file is in; "." has the nouns and the doors
    ".": 7_300,
    "cli": 3_600,
    "engine": 1_800,
    "executors": 1_300,
    "mq": 299,
    "observe": 350,
    "operations": 2_750,
    "stores": 1_400,
    "stores/memory": 1_450,
    "stores/postgres": 1_750,
    "stores/postgres/functions": 1_800,
    "stores/redis": 1_950,
    "stores/redis/lua": 1_900,
    "stores/sqlite": 3_650,
    "testing": 600,
}


def sizes() -> dict[Path, int]:
    files = (path for suffix in ("py", "sql", "lua") for path in SOURCE.rglob(f"*.{suffix}"))
    return {path.relative_to(SOURCE): len(path.read_text("utf-8").splitlines()) for path in files}


def functions() -> Iterator[tuple[str, int]]:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}", lines


def test_no_file_is_too_long() -> None:
    assert {str(name): lines for name, lines in sizes().items() if lines > FILE} == {}


def test_no_function_is_too_long() -> None:
    assert {name: lines for name, lines in functions() if lines > FUNCTION} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_keeps_its_budget(room: str) -> None:
    assert sum(lines for name, lines in sizes().items() if name.parent == Path(room)) <= ROOMS[room]


def test_every_room_has_a_budget() -> None:
    assert {str(name.parent) for name in sizes()} == set(ROOMS)
