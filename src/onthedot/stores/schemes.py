"""URL schemes: the store that a URL names, and what can be done with it before it is opened."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast
from urllib.parse import quote

from onthedot.errors import StoreRefused
from onthedot.stores.masked_url import masked

if TYPE_CHECKING:
    from onthedot.clock.protocol import Clock
    from onthedot.stores.contract import Store


class Schema(Protocol):
    """The schema of a SQL store. where: a file, or the URL of a server."""

    def schema_text(self) -> str: ...
    def install(self, where: str) -> None: ...
    def check(self, where: str) -> tuple[bool, str]: ...


class StoreDriver(NamedTuple):
    """A module that a store needs, and the extra of this package that brings it."""

    module: str
    extra: str


class Scheme(NamedTuple):
    """The URLs of one store and the functions behind them. Its modules are imported when they are used."""

    names: tuple[str, ...]
    connect: Callable[[str, Clock, str], Store]
    driver: StoreDriver | None = None
    file: Callable[[str], Path] | None = None
    apps: Callable[[str], list[str]] | None = None  # of a file, or of the URL of a server
    schema: Callable[[], Schema] | None = None
    rights: Callable[[str, str, str], str] | None = None  # URL, role, app
    remove: Callable[[str, str], None] | None = None  # URL, app


def _connect_memory(_url: str, clock: Clock, _name: str) -> Store:
    from onthedot.stores.memory import MemoryStore

    return MemoryStore(clock)


def _connect_sqlite(url: str, clock: Clock, name: str) -> Store:
    from onthedot.stores.sqlite import SqliteStore, makes_schema, path_of

    return SqliteStore(path_of(url), clock, name, auto_schema=makes_schema(url))


def _connect_redis(url: str, clock: Clock, name: str) -> Store:
    from onthedot.stores.redis import RedisStore

    return RedisStore(url, clock, name)


def _connect_postgres(url: str, clock: Clock, name: str) -> Store:
    from onthedot.stores.postgres import PostgresStore

    return PostgresStore(url, clock, name)


def _postgres_rights(_url: str, role: str, _app: str) -> str:
    from onthedot.stores.postgres.grants import rights_text

    return rights_text(role)


def _lazy(module: str, function: str) -> Callable[..., Any]:
    """A function of a store's module, which is imported when it is called."""

    def call(*args: str) -> Any:
        return getattr(import_module(f"onthedot.stores.{module}"), function)(*args)

    return call


def _schema_module(store: str) -> Callable[[], Schema]:
    return lambda: cast(Schema, import_module(f"onthedot.stores.{store}.schema"))


SCHEMES = (
    Scheme(("memory",), _connect_memory),
    Scheme(
        ("sqlite",),
        _connect_sqlite,
        file=_lazy("sqlite", "path_of"),
        apps=_lazy("sqlite.schema", "apps_in"),
        schema=_schema_module("sqlite"),
    ),
    Scheme(
        ("redis", "rediss", "redis+sentinel", "redis+cluster"),
        _connect_redis,
        StoreDriver("redis", "redis"),
        apps=_lazy("redis.client", "apps_in"),
        rights=_lazy("redis.acl", "rights_text"),
        remove=_lazy("redis.removal", "remove_app"),
    ),
    Scheme(
        ("postgresql", "postgres"),
        _connect_postgres,
        StoreDriver("asyncpg", "postgres"),
        apps=_lazy("postgres.schema", "apps_in"),
        schema=_schema_module("postgres"),
        rights=_postgres_rights,
        remove=_lazy("postgres.schema", "remove_app"),
    ),
)
_BY_NAME = {name: scheme for scheme in SCHEMES for name in scheme.names}


def _scheme(url: str) -> Scheme:
    name = url.partition(":")[0]
    if name not in _BY_NAME:
        raise StoreRefused(f"{masked(url).partition(':')[0]}:// is no store of this version")
    return _BY_NAME[name]


def connect(url: str, clock: Clock, name: str = "onthedot") -> Store:
    """The store behind a URL; its driver is imported now. name: each app sees its own tasks in a shared store."""
    return _scheme(url).connect(url, clock, name)


def driver_of(url: str) -> StoreDriver | None:
    """None: the store needs none."""
    return _scheme(url).driver


def file_of(url: str) -> Path | None:
    """The file of a store; None: it has none."""
    scheme = _BY_NAME.get(url.partition(":")[0])
    return None if scheme is None or scheme.file is None else scheme.file(url)


def file_url(path: Path) -> str:
    return f"sqlite:///{quote(str(path))}"


def absolute(url: str) -> str:
    """The same file from every folder.

    >>> absolute("sqlite:////var/lib/shop.db?auto_schema=0"), absolute("memory://")
    ('sqlite:////var/lib/shop.db?auto_schema=0', 'memory://')
    """
    path = file_of(url)
    if path is None:
        return url
    _, mark, options = url.partition("?")
    return f"{file_url(path.absolute())}{mark}{options}"


def apps_in(url: str) -> list[str]:
    """The names of the apps that have, or had, anything in a store."""
    apps = _scheme(url).apps
    return [] if apps is None else apps(str(file_of(url) or url))


def has_schema(url: str) -> bool:
    return _scheme(url).schema is not None


def schema_text(url: str) -> str:
    """The schema as SQL."""
    return _schema(url).schema_text()


def check_schema(url: str, *, install: bool = False) -> tuple[bool, str]:
    """Whether the schema is the one of this version, and a sentence about it."""
    schema = _schema(url)
    where = str(file_of(url) or url)
    if install:
        schema.install(where)
    return schema.check(where)


def _schema(url: str) -> Schema:
    scheme = _scheme(url)
    if scheme.schema is None:
        raise StoreRefused(f"{scheme.names[0]}:// has no schema")
    return scheme.schema()


def rights_text(url: str, role: str, app: str) -> str | None:
    """The commands by which the owner of a server lets a role work with tasks and do nothing else.

    app: its tasks only, where the server can separate them; "" for all. None: a store that has no users.
    """
    rights = _scheme(url).rights
    return None if rights is None else rights(url, role, app)


def remove_app(url: str, name: str) -> None:
    """Delete everything that a server keeps of an app, which no process uses any more.

    It is refused, also for an app that does not exist, if the user of the URL may not delete all of it.
    """
    remove = _scheme(url).remove
    if remove is None:
        raise StoreRefused(f"{masked(url)}: apps are removed with the file, not one by one")
    remove(url, name)
