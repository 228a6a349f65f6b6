"""What can be known of a store without opening it: its file, whose tasks are in it, its schema."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote


def file_of(url: str) -> Path | None:
    """Of a store that is one."""
    if not url.startswith("sqlite:"):
        return None
    from onthedot.stores.sqlite import path_of

    return Path(path_of(url))


def absolute(url: str) -> str:
    """The same file from every folder.

    >>> absolute("sqlite:////var/lib/shop.db?auto_schema=0"), absolute("memory://")
    ('sqlite:////var/lib/shop.db?auto_schema=0', 'memory://')
    """
    path = file_of(url)
    if path is None:
        return url
    _, mark, options = url.partition("?")
    return f"sqlite:///{quote(str(path.absolute()))}{mark}{options}"


def apps_in(path: Path) -> list[str]:
    """The names of the apps that have anything in the file."""
    from onthedot.stores.sqlite import schema

    return schema.apps_in(str(path))


def schema_text() -> str:
    from onthedot.stores.sqlite import schema

    return schema.schema_text()


def check_schema(path: Path, *, install: bool = False) -> tuple[bool, str]:
    """Is the file's schema the one of this version, and in words."""
    from onthedot.stores.sqlite import schema

    if install:
        schema.install(str(path))
    return schema.check(str(path))
