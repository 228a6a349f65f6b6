"""The files of `src` and `tests` as the gates read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "onthedot"
TESTS = ROOT / "tests"
PROGRAMS = (ROOT / "benchmarks", ROOT / "examples")


def source_files(*suffixes: str) -> list[Path]:
    return sorted(path for suffix in suffixes for path in SOURCE.rglob(f"*.{suffix}"))


def all_tests() -> list[Path]:
    return sorted(TESTS.rglob("*.py"))


def all_programs() -> list[Path]:
    """Benchmarks and examples."""
    return sorted(path for folder in PROGRAMS for path in folder.rglob("*.py"))


def short_name(path: Path) -> str:
    """`engine/worker.py` for a file of `src`, `tests/…` for a test."""
    return path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT).as_posix()


@cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(syntax_tree(path))
