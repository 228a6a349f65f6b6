"""No package touches a private name of another one. A test that needs one shows that a public seam is missing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.source_files import SOURCE, all_tests, nodes, short_name, source_files

PRIVATE = re.compile(r"_[a-zA-Z]\w*")
OF_PYTHON = frozenset(
    {
        "_args_from_interpreter_flags",
        "_asdict",
        "_base_executable",
        "_exit",
        "_fields",
        "_get_running_loop",
        "_getframe",
        "_make",
        "_replace",
        "_set_running_loop",
    }
)
"""Names of the standard library that begin with an underscore and are meant for others."""

OF_LIBRARIES = {
    "events/kafka/client_stop.py": frozenset(
        {"_client", "_closed", "_coordinator", "_fetch_task", "_fetcher", "_md_update_fut", "_pending_tasks", "_sender"}
    )
}
"""Names of libraries, for a reason that the file gives."""

BY_NAME = frozenset({"getattr", "setattr", "delattr"})
"""Functions, and methods of `monkeypatch`, that take the name of an attribute."""


def package(path: Path) -> str:
    """The package whose private names a file may use: for stores, the single store; for tests, the folder."""
    if not path.is_relative_to(SOURCE):
        return path.parent.as_posix()
    parts = path.relative_to(SOURCE).parts
    return "/".join(parts[: 2 if parts[0] == "stores" else 1])


@cache
def defined_names() -> dict[str, set[str]]:
    """The private names that the files of a package define."""
    names: dict[str, set[str]] = defaultdict(set)
    for path in [*source_files("py"), *all_tests()]:
        for node in nodes(path):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    names[package(path)].add(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    names[package(path)].add(name)
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                    names[package(path)].add(name)
                case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=slots)):
                    names[package(path)].update(slot.value for slot in slots if isinstance(slot, ast.Constant))
    return names


def used_names(path: Path) -> Iterator[tuple[int, str]]:
    """Private names of other objects or modules: attributes, imports and names in texts for `setattr` and the like."""
    for node in nodes(path):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.ImportFrom(module=str(module), names=aliases) if module.startswith("onthedot"):
                for alias in aliases:
                    yield node.lineno, alias.name
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr") | ast.Attribute(attr="setattr" | "delattr"), args=args
            ):
                for arg in args[:2]:
                    if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
                        yield node.lineno, arg.value.rpartition(".")[2]


def private_usage() -> Iterator[tuple[str, str]]:
    for path in [*source_files("py"), *all_tests()]:
        allowed = defined_names()[package(path)] | OF_PYTHON | OF_LIBRARIES.get(short_name(path), frozenset())
        for number, name in used_names(path):
            if PRIVATE.fullmatch(name) and name not in allowed:
                yield short_name(path), f"{number} {name}"


def test_no_private_name_of_another_package_is_used() -> None:
    assert list(private_usage()) == []
