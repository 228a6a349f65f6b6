"""The package installs what its code imports, and nothing else."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.support.source_files import ROOT, SOURCE

REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,.-]+)\])?")
WITHOUT_CODE = {"tzdata"}  # data, which zoneinfo reads where the system has none
MODULES = {"opentelemetry_api": "opentelemetry"}  # of packages with another name


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]  # type: ignore[no-any-return]


def packages(requirements: list[str]) -> Iterator[str]:
    """The packages of requirements, with those that their extras bring: `redis[hiredis]` is two."""
    for requirement in requirements:
        found = REQUIREMENT.match(requirement)
        assert found is not None
        name, extras = found.groups()
        brought = [] if extras is None else extras.split(",")
        if name == project()["name"]:
            for extra in brought:
                yield from packages(project()["optional-dependencies"][extra])
        else:
            yield from (name, *brought)


@cache
def imported() -> frozenset[str]:
    """Top-level modules that are imported anywhere in the source, also lazily."""
    names: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("import_module", "importlib.import_module"):
                names |= {str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)}
    return frozenset(name.partition(".")[0] for name in names)


@pytest.mark.parametrize("extra", [None, *project()["optional-dependencies"]])
def test_every_package_that_is_installed_is_imported(extra: str | None) -> None:
    requirements = project()["dependencies"] if extra is None else project()["optional-dependencies"][extra]
    names = {name.replace("-", "_") for name in packages(requirements)} - WITHOUT_CODE
    assert {MODULES.get(name, name) for name in names} - imported() == set()


def test_all_has_every_extra_but_prefect() -> None:
    """Prefect has many pins, and its flows an environment of their own."""
    optional = project()["optional-dependencies"].items()
    extras = {name: requirements for name, requirements in optional if name not in ("all", "prefect")}
    everything = {name for requirements in extras.values() for name in packages(requirements)}
    assert set(packages(project()["optional-dependencies"]["all"])) == everything
