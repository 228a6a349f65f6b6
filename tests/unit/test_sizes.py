"""Files and functions above these sizes have more than one job: split the job, never compress lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_files import all_programs, all_tests, nodes, short_name, source_files

MAX_FILE = 450
MAX_FUNCTION = 60
MAX_CONDITIONALS = 12
"""Conditional expressions per 1,000 lines. The goal is 8: lower it with every file that is rewritten."""


def line_count(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def test_no_file_is_too_long() -> None:
    lines = {short_name(path): line_count(path) for path in [*source_files("py", "sql", "lua"), *all_tests()]}
    assert {file: count for file, count in lines.items() if count > MAX_FILE} == {}


def python_functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def lua_functions(path: Path) -> Iterator[tuple[str, int]]:
    """A function ends with the first `end` of its own indentation."""
    text = path.read_text("utf-8")
    for found in re.finditer(r"^( *)(?:local )?function ([\w.]+).*?^\1end$", text, re.DOTALL | re.MULTILINE):
        yield found[2], found[0].count("\n") + 1


def sql_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Functions, and statements that have a name."""
    for part in re.split(r"^(?=-- name: )", path.read_text("utf-8"), flags=re.MULTILINE):
        if named := re.match(r"-- name: (\w+)", part):
            statement = "\n".join(line for line in part.strip().splitlines() if not line.startswith("--"))
            yield named[1], statement.strip().count("\n") + 1


def functions() -> Iterator[tuple[str, int]]:
    readers = {".py": python_functions, ".lua": lua_functions, ".sql": sql_functions}
    for path in source_files("py", "lua", "sql"):
        for name, lines in readers[path.suffix](path):
            yield f"{short_name(path)} {name}", lines


def test_no_function_is_too_long() -> None:
    assert {name: lines for name, lines in functions() if lines > MAX_FUNCTION} == {}


def test_functions_of_every_language_are_found() -> None:
    languages = {Path(name.split()[0]).suffix for name, _ in functions()}
    assert languages == {".py", ".lua", ".sql"}


def test_conditional_expressions_are_rare() -> None:
    files = source_files("py")
    conditionals = sum(isinstance(node, ast.IfExp) for path in files for node in nodes(path))
    per_thousand = 1000 * conditionals / sum(map(line_count, files))
    assert per_thousand <= MAX_CONDITIONALS


def is_swap(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    return sorted(map(ast.unparse, targets)) == sorted(map(ast.unparse, values))


def tuple_assignments() -> Iterator[tuple[str, str]]:
    for path in [*source_files("py"), *all_tests(), *all_programs()]:
        for node in nodes(path):
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                    if not is_swap(targets, values):
                        yield short_name(path), f"{node.lineno} {ast.unparse(node)}"


def test_one_assignment_assigns_one_value() -> None:
    assert list(tuple_assignments()) == []
