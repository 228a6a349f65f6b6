"""SQL by name, from the files beside this one."""

from __future__ import annotations

from pathlib import Path


def load(file: str) -> dict[str, str]:
    """Statements under ``-- name:`` headers; the first says what every ``{record}`` stands for."""
    named: dict[str, str] = {}
    for part in Path(__file__).with_name(file).read_text("utf-8").split("-- name: ")[1:]:
        name, _, statement = part.partition("\n")
        assert name.strip() not in named, f"{file} has {name.strip()} twice"
        named[name.strip()] = statement.strip().rstrip(";").replace("{record}", named.get("record", ""))
    return named


SQL = load("queries.sql")
