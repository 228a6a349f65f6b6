"""SQL by name, from the files beside this one."""

from __future__ import annotations

from pathlib import Path


def load(file: str) -> dict[str, str]:
    """Statements under ``-- name:`` headers; two of them say what every ``{record}`` and ``{filters}`` stands for."""
    named: dict[str, str] = {}
    for part in Path(__file__).with_name(file).read_text("utf-8").split("-- name: ")[1:]:
        name, _, statement = part.partition("\n")
        assert name.strip() not in named, f"{file} has {name.strip()} twice"
        whole = statement.strip().rstrip(";")
        for part_of_many in ("record", "filters"):
            whole = whole.replace(f"{{{part_of_many}}}", named.get(part_of_many, ""))
        named[name.strip()] = whole
    return named


SQL = load("queries.sql")
