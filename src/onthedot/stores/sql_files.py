"""SQL files: statements under ``-- name:`` headers, each with a description."""

from __future__ import annotations

from pathlib import Path


def load_queries(*files: Path) -> dict[str, str]:
    """The statements of files by name. ``{name}`` in a statement is replaced by the text of an earlier one."""
    queries: dict[str, str] = {}
    for file in files:
        for part in file.read_text("utf-8").split("-- name: ")[1:]:
            name, *lines = part.strip().splitlines()
            assert name not in queries, f"{file.name}: there are two of {name}"
            text = "\n".join(line for line in lines if not line.startswith("--")).rstrip(";")
            for fragment, meaning in queries.items():
                text = text.replace(f"{{{fragment}}}", meaning)
            queries[name] = text
    return queries
