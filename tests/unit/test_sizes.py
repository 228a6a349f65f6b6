"""Files and functions above these sizes have more than one job: split the job, never compress lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "onthedot"
FILE, FUNCTION = 450, 60  # lines


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
