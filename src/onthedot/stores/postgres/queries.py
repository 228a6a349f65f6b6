"""SQL by name, from the files beside this one."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def load(file: str) -> dict[str, str]:
    """Statements under ``-- name:`` headers. A ``{name}`` stands for the text of that name, which comes before."""
    named: dict[str, str] = {}
    for part in (HERE / file).read_text("utf-8").split("-- name: ")[1:]:
        name, _, statement = part.partition("\n")
        assert name.strip() not in named, f"{file} has {name.strip()} twice"
        text = statement.strip().rstrip(";")
        for known, meant in named.items():
            text = text.replace(f"{{{known}}}", meant)
        named[name.strip()] = text
    return named


SQL = load("queries.sql")
