"""Small edits at random places of the sources: comparisons, constants, conditions and statements."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple


@dataclass(frozen=True)
class Part:
    """A part of the sources, and the tests that are meant for it."""

    folders: tuple[str, ...]
    suffix: str
    comment: str
    tests: str


PARTS = {
    "engine": Part(("src/onthedot/engine",), ".py", "#", "tests/unit/engine tests/unit/executors"),
    "lua": Part(("src/onthedot/stores/redis/lua",), ".lua", "--", "tests/contract -k redis"),
    "sql": Part(("src/onthedot/stores/postgres/functions",), ".sql", "--", "tests/contract -k postgres"),
}
COMMON = ((r" < ", " <= "), (r" > ", " >= "), (r" <= ", " < "), (r" >= ", " > "), (r" \+ 1\b", ""), (r" - 1\b", ""))
EDITS = {
    ".py": (
        *COMMON, (r" == ", " != "), (r" != ", " == "), (r"\bif not ", "if "), (r"\bTrue\b", "False"),
        (r"\bFalse\b", "True"), (r" and ", " or "), (r" or ", " and "), (r"^( +)self\.\w+(\.\w+)*\(.*\)$", r"\1pass"),
    ),
    ".lua": (
        *COMMON, (r" == ", " ~= "), (r" ~= ", " == "), (r"\bif not ", "if "), (r" and ", " or "), (r" or ", " and "),
        (r"^( +)\w+\(.*\)$", r"\1local _"),
    ),
    ".sql": (
        *COMMON, (r"\bAND NOT ", "AND "), (r" OR ", " AND "), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
        (r"^( +)PERFORM .*;$", r"\1PERFORM 1;"), (r" SKIP LOCKED", ""),
    ),
}  # fmt: skip


class Place(NamedTuple):
    file: str
    text: str  # file, line and edit, for the list of survivors


def sample(root: Path, part: str, number: int, seed: int) -> list[tuple[Place, str, str]]:
    """Place, old content of the file and new content."""
    found = [edit for path in files(root, part) for edit in edits_of(root, path, PARTS[part])]
    return Random(seed).sample(found, min(number, len(found)))


def files(root: Path, part: str) -> list[Path]:
    folders = PARTS[part].folders
    return sorted(path for folder in folders for path in (root / folder).rglob(f"*{PARTS[part].suffix}"))


def edits_of(root: Path, path: Path, part: Part) -> list[tuple[Place, str, str]]:
    content = path.read_text("utf-8")
    lines = content.splitlines(keepends=True)
    file = path.relative_to(root).as_posix()
    found: list[tuple[Place, str, str]] = []
    for index, line in enumerate(lines):
        code = line.rstrip("\n")
        if not code.strip() or code.strip().startswith((part.comment, '"""', "import ", "from ")):
            continue
        for pattern, replacement in EDITS[part.suffix]:
            for match in re.finditer(pattern, code):
                edited = code[: match.start()] + match.expand(replacement) + code[match.end() :]
                text = f"{file}:{index + 1}: {code.strip()} → {edited.strip()}"
                new = "".join([*lines[:index], edited + "\n", *lines[index + 1 :]])
                found.append((Place(file, text), content, new))
    return found
