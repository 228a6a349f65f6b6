"""`./dev faults NAME --long` finds every acceptance test that has a long form."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_files import ROOT

pytestmark = [pytest.mark.once, pytest.mark.timeout(180)]

FOLDER = Path(__file__).parent


def long_forms() -> Iterator[tuple[str, list[str]]]:
    """Their names, and the decorators that they have."""
    for file in sorted(FOLDER.rglob("test_*.py")):
        text = file.read_text("utf-8")
        if "from tests.faults import" not in text:  # others have a LONG of their own
            continue
        tree = ast.parse(text)
        names = imported(tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
                if used & names:
                    yield node.name, [ast.unparse(each) for each in node.decorator_list]


def imported(tree: ast.Module) -> set[str]:
    """Names of `tests.faults`."""
    imports = [each for each in tree.body if isinstance(each, ast.ImportFrom) and each.module == "tests.faults"]
    return {alias.name for each in imports for alias in each.names}


def test_long_forms_are_marked() -> None:
    found = dict(long_forms())
    assert "test_load_prints_each_goal_and_no_item_or_retry_is_lost" in found
    assert [name for name, marks in found.items() if "pytest.mark.long" not in marks] == []


def test_command_collects_long_forms_by_their_names() -> None:
    command = [str(ROOT / "dev"), "faults", "each_goal", "--long", "--collect-only", "-q"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert "test_genesis.py::test_load_prints_each_goal_and_no_item_or_retry_is_lost" in ended.stdout, ended.stderr
