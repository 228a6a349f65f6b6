"""Grants for a role that may work with tasks and do nothing else."""

from __future__ import annotations

import re
from typing import NamedTuple

from onthedot.stores.postgres.queries import FOLDER, SQL

_CALLED = re.compile(r"onthedot\.(\w+_v\d+)\(")
_IS_VERB = re.compile(r"^SELECT (\* FROM )?onthedot\.(\w+)\(")


class CalledFunctions(NamedTuple):
    """The functions that clients call."""

    verbs: list[str]  # they write, with the rights of their owner
    readers: list[str]  # reads use them, with the rights of the role


def called_functions() -> CalledFunctions:
    """Read from the statements, so the list cannot become outdated."""
    verbs: set[str] = set()
    readers: set[str] = set()
    for name, statement in SQL.items():
        is_verb = name == "new_app" or _IS_VERB.match(statement)
        (verbs if is_verb else readers).update(_CALLED.findall(statement))
    return CalledFunctions(sorted(verbs), sorted(readers - verbs))


def rights_text(role: str) -> str:
    called = called_functions()
    text = (FOLDER / "grants.sql").read_text("utf-8")
    quoted = '"' + role.replace('"', '""') + '"'
    return (
        text.replace("{role}", quoted)
        .replace("{verbs}", ", ".join(f"'{name}'" for name in called.verbs))
        .replace("{readers}", ", ".join(f"'{name}'" for name in called.readers))
    )
