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


def is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


def apps_in(where: Path | str) -> list[str]:
    """The names of the apps that have anything in a file, or on the server behind a URL."""
    if isinstance(where, Path):
        from onthedot.stores.sqlite import schema

        return schema.apps_in(str(where))
    if is_postgres(where):
        from onthedot.stores.postgres import schema as there

        return there.apps_in(where)
    from onthedot.stores.redis.client import apps_in as apps_of

    return apps_of(where)


def schema_text(url: str = "sqlite:") -> str:
    if is_postgres(url):
        from onthedot.stores.postgres import schema as there

        return there.schema_text()
    from onthedot.stores.sqlite import schema

    return schema.schema_text()


def rights_text(url: str, role: str, app: str) -> str | None:
    """What the owner of a server tells it, so that this role may work with tasks and do nothing else.

    app: its tasks only, where the server can tell them apart; "" for all. None: a store that has no users.
    """
    if is_postgres(url):
        from onthedot.stores.postgres import grants as there

        return there.rights_text(role)
    if url.startswith(("redis", "rediss")):
        from onthedot.stores.redis import acl

        return acl.rights_text(url, role, app)
    return None


def check_schema(where: Path | str, *, install: bool = False) -> tuple[bool, str]:
    """Is the schema of a file, or of the database behind a URL, the one of this version, and in words."""
    if isinstance(where, str):
        from onthedot.stores.postgres import schema as there

        if install:
            there.install(where)
        return there.check(where)
    from onthedot.stores.sqlite import schema

    if install:
        schema.install(str(where))
    return schema.check(str(where))
