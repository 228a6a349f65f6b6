"""No package touches a private name of another one. A test that needs one shows that a public seam is missing.

The exceptions at the end are the code that does not comply yet. They only shrink.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.source_files import SOURCE, all_tests, nodes, short_name, source_files, unexpected

PRIVATE = re.compile(r"_[a-zA-Z]\w*")
OF_PYTHON = frozenset(
    {
        "_args_from_interpreter_flags",
        "_asdict",
        "_exit",
        "_fields",
        "_get_running_loop",
        "_getframe",
        "_make",
        "_replace",
    }
)
"""Names of the standard library that begin with an underscore and are meant for others."""

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
        allowed = defined_names()[package(path)] | OF_PYTHON
        for number, name in used_names(path):
            if PRIVATE.fullmatch(name) and name not in allowed:
                yield short_name(path), f"{number} {name}"


def test_no_private_name_of_another_package_is_used() -> None:
    assert unexpected(private_usage(), TO_BE_MADE_PUBLIC) == []


# To be removed: uses per file.
TO_BE_MADE_PUBLIC: dict[str, int] = {
    "cli/add.py": 7,
    "cli/demo.py": 1,
    "cli/doctor.py": 1,
    "cli/target.py": 2,
    "mq/queue.py": 2,
    "observability/log_format.py": 1,
    "stores/postgres/reads.py": 1,
    "stores/redis/position.py": 1,
    "testing/assertions.py": 1,
    "testing/driver.py": 2,
    "tests/acceptance/row_a/test_time.py": 1,
    "tests/acceptance/row_b/test_shared_scheduler.py": 7,
    "tests/acceptance/row_b/test_status.py": 6,
    "tests/acceptance/row_c/test_app.py": 2,
    "tests/acceptance/row_d/test_queue.py": 4,
    "tests/acceptance/row_d/test_redis.py": 7,
    "tests/acceptance/shared.py": 1,
    "tests/conftest.py": 3,
    "tests/faults/commits.py": 1,
    "tests/faults/test_commits.py": 1,
    "tests/faults/test_kill.py": 2,
    "tests/faults/test_limits.py": 2,
    "tests/faults/test_move.py": 3,
    "tests/faults/test_schedule_kill.py": 1,
    "tests/faults/test_shared.py": 1,
    "tests/support/consumers.py": 2,
    "tests/support/services/postgres.py": 1,
    "tests/support/services/versions.py": 1,
    "tests/unit/api/test_app.py": 3,
    "tests/unit/api/test_app_lifecycle.py": 1,
    "tests/unit/api/test_scheduler_status.py": 8,
    "tests/unit/api/test_transactions.py": 1,
    "tests/unit/cli/test_doctor.py": 1,
    "tests/unit/cli/test_move.py": 2,
    "tests/unit/cli/test_schedule.py": 1,
    "tests/unit/cli/test_sources.py": 2,
    "tests/unit/client/test_status_counts.py": 1,
    "tests/unit/clock/test_precise_timer.py": 1,
    "tests/unit/definitions/test_code_limits.py": 4,
    "tests/unit/definitions/test_consumers.py": 2,
    "tests/unit/definitions/test_task_options.py": 6,
    "tests/unit/engine/test_heartbeat.py": 1,
    "tests/unit/engine/test_lifecycle.py": 5,
    "tests/unit/executors/test_process_ends.py": 8,
    "tests/unit/executors/test_processes.py": 1,
    "tests/unit/operations/test_limits.py": 3,
    "tests/unit/operations/test_move_schedules.py": 4,
    "tests/unit/schedules/conftest.py": 11,
    "tests/unit/schedules/test_api.py": 2,
    "tests/unit/schedules/test_clocks.py": 6,
    "tests/unit/schedules/test_owners.py": 6,
    "tests/unit/schedules/test_races.py": 4,
    "tests/unit/schedules/test_windows.py": 2,
    "tests/unit/stores/differences.py": 1,
    "tests/unit/stores/postgres/test_errors.py": 3,
    "tests/unit/stores/postgres/test_pgbouncer.py": 3,
    "tests/unit/stores/redis/test_connection.py": 13,
    "tests/unit/stores/redis/test_handoff_worker.py": 29,
    "tests/unit/stores/redis/test_policies.py": 1,
    "tests/unit/stores/redis/test_wait.py": 3,
    "tests/unit/stores/redis/test_worker.py": 5,
    "tests/unit/stores/sqlite/test_errors.py": 2,
    "tests/unit/stores/sqlite/test_fsync_thread.py": 2,
    "tests/unit/stores/sqlite/test_hostile.py": 7,
    "tests/unit/stores/sqlite/test_writer_thread.py": 2,
    "tests/unit/testing/test_life.py": 3,
}
