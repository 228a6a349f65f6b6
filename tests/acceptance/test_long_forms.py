"""`./dev faults NAME --long` finds every test that has a long form."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.source_files import ROOT

pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]

SWITCHES = {"LONG", "scaled"}  # of `tests.faults`
EXAMPLES = [
    "row_e/test_genesis.py::test_load_prints_each_goal_and_no_item_or_retry_is_lost",
    "page/test_budgets.py::test_page_stays_quick_and_small_at_2000_transitions_per_second",
    "page/test_lost_connection.py::test_streams_that_nobody_reads_cost_little_memory",
    "web/test_generated_requests.py::test_every_store",
    "postgres/test_many_cancels.py::test_cancels_cost_the_same_after_six_thousand_of_them",
]


def long_forms() -> Iterator[tuple[str, list[str]]]:
    """`file::test`, and the decorators that it has."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if file.is_relative_to(ROOT / "tests" / "faults"):  # all of them are run
            continue
        tree = ast.parse(file.read_text("utf-8"))
        names = depending_names(tree)
        functions = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        for node in functions:
            if node.name.startswith("test") and names & names_in(node):
                decorators = [ast.unparse(each) for each in node.decorator_list]
                yield f"{file.relative_to(ROOT).as_posix()}::{node.name}", decorators


def depending_names(tree: ast.Module) -> set[str]:
    """The switches that a module imports, and what it makes of them: constants, functions, fixtures."""
    imports = [each for each in tree.body if isinstance(each, ast.ImportFrom) and each.module == "tests.faults"]
    found = {alias.name for each in imports for alias in each.names} & SWITCHES
    before: set[str] = set()
    while found != before:
        before = set(found)
        for node in tree.body:
            if before & names_in(node):
                found |= defined_names(node)
    return found


def defined_names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Assign):
        return {each.id for each in node.targets if isinstance(each, ast.Name)} - {"pytestmark"}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    return set()


def names_in(node: ast.stmt) -> set[str]:
    """Of variables, functions and parameters; a fixture is a parameter."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}


def test_long_forms_are_marked() -> None:
    found = dict(long_forms())
    assert [example for example in EXAMPLES if not any(name.endswith(example) for name in found)] == []
    assert [name for name, marks in found.items() if "pytest.mark.long" not in marks] == []


def test_switch_of_long_forms_is_read_in_one_place() -> None:
    variable = "ONTHEDOT_" + "FAULTS"  # not found in this file
    readers = [path for path in (ROOT / "tests").rglob("*.py") if f'"{variable}"' in path.read_text("utf-8")]
    assert readers == [ROOT / "tests" / "faults" / "__init__.py"]


def test_command_collects_every_long_form() -> None:
    command = [str(ROOT / "dev"), "faults", "--long", "--collect-only", "-q"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    collected = {line.partition("[")[0] for line in ended.stdout.splitlines()}
    assert [name for name, _ in long_forms() if name not in collected] == [], ended.stderr


def test_command_takes_the_beginning_of_a_name() -> None:
    command = [str(ROOT / "dev"), "faults", "each_goal", "--long", "--collect-only", "-q"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    collected = {line.partition("[")[0] for line in ended.stdout.splitlines() if "::" in line}
    assert collected == {f"tests/acceptance/{EXAMPLES[0]}"}
