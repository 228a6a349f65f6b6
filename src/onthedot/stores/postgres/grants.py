"""The rights of a role that may work with tasks, and do nothing else."""

from __future__ import annotations

import re

from onthedot.stores.postgres.queries import HERE, SQL

_CALLED = re.compile(r"onthedot\.(\w+_v\d+)\(")
_IS_VERB = re.compile(r"^SELECT (\* FROM )?onthedot\.(\w+)\(")


def functions() -> tuple[list[str], list[str]]:
    """Verbs, and what looking calls; as the statements have them."""
    verbs, readers = set[str](), set[str]()
    for name, statement in SQL.items():
        is_verb = name == "new_app" or _IS_VERB.match(statement)
        (verbs if is_verb else readers).update(_CALLED.findall(statement))
    return sorted(verbs), sorted(readers - verbs)


def rights_text(role: str) -> str:
    verbs, readers = (", ".join(f"'{name}'" for name in names) for names in functions())
    text = (HERE / "grants.sql").read_text("utf-8")
    quoted = '"' + role.replace('"', '""') + '"'
    return text.replace("{role}", quoted).replace("{verbs}", verbs).replace("{readers}", readers)
