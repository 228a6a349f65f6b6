"""sqlite:///relative.db, sqlite:////absolute.db, and ?auto_schema=0 for users without schema rights."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote

from onthedot.errors import StoreRefused


def path_of(url: str) -> Path:
    rest = url.removeprefix("sqlite://").partition("?")[0]
    path = unquote(rest.removeprefix("/"))
    if not rest.startswith("/") or path in ("", ":memory:"):
        raise StoreRefused(
            f"{url} names no file: sqlite:///{rest.strip('/:') or 'tasks.db'} is one in this folder, "
            "sqlite:////var/lib/tasks.db one anywhere; "
            "tasks that need not outlive the process are for memory://"
        )
    return Path(path)


def makes_schema(url: str) -> bool:
    options = dict(parse_qsl(url.partition("?")[2]))
    if unknown := options.keys() - {"auto_schema"}:
        raise StoreRefused(f"{url}: unknown option {', '.join(sorted(unknown))}; known is auto_schema=0")
    return options.get("auto_schema", "1") not in ("0", "false")
