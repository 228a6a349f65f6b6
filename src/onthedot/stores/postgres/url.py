"""postgresql://user:secret@host:5432/database, with a few options behind a question mark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from onthedot.errors import StoreRefused
from onthedot.stores.masked_url import split_url

OPTIONS: tuple[str, ...] = ("auto_schema", "lease", "listen", "notify", "statement_cache_size")


@dataclass(frozen=True)
class PostgresAddress:
    """The database, and how to use it.

    >>> PostgresAddress.of("postgres://me:secret@db/shop?auto_schema=0&sslmode=require")
    PostgresAddress(url='postgresql://me@db/shop', auto_schema=False, statement_cache_size=100, lease=30000)
    """

    dsn: str
    auto_schema: bool = True
    statement_cache_size: int = 100  # 0: for a pooler that gives every transaction another connection
    lease: int = 30_000  # ms that a session lives without a heartbeat
    notify: bool = True  # events that are published in the caller's transaction send a notification at its commit
    listen: str = ""  # host:port of the server itself, if a pooler is in between: it does not pass on LISTEN

    @property
    def listen_address(self) -> PostgresAddress:
        """Where to LISTEN for hints."""
        if not self.listen:
            return self
        parts = urlsplit(self.dsn)
        login, at, _ = parts.netloc.rpartition("@")
        return replace(self, dsn=urlunsplit(parts._replace(netloc=f"{login}{at}{self.listen}")), listen="")

    @property
    def where(self) -> str:
        """For messages: without password and options."""
        parts = urlsplit(self.dsn)
        user = f"{parts.username}@" if parts.username else ""
        return urlunsplit(("postgresql", user + parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def __repr__(self) -> str:
        options = (
            f"auto_schema={self.auto_schema}, statement_cache_size={self.statement_cache_size}, lease={self.lease}"
        )
        return f"PostgresAddress(url={self.where!r}, {options})"

    @classmethod
    def of(cls, url: str) -> PostgresAddress:
        parts = split_url(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        ours = {name: options.pop(name) for name in OPTIONS if name in options}
        try:
            cached = int(ours.get("statement_cache_size", "100"))
            lease = round(float(ours.get("lease", "30")) * 1000)
        except (ValueError, OverflowError):
            cached = lease = -1
        if cached < 0 or lease < 1:
            rule = "lease must be seconds, more than nothing, and statement_cache_size a whole number from 0"
            raise StoreRefused(f"{cls(url).where}: {rule}")
        dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))
        auto_schema = ours.get("auto_schema", "1") not in ("0", "false")
        notify = ours.get("notify", "1") not in ("0", "false")
        return cls(dsn, auto_schema, cached, lease, notify, ours.get("listen", ""))
