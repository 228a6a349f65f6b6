"""redis://user:password@host:6379/0, rediss:// with TLS, redis+sentinel://h1:26379,h2/service/0, redis+cluster://h1,h2."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from onthedot.errors import StoreRefused

_OPTIONS = (
    "lease", "max_connections", "tls", "tls_ca", "tls_cert", "tls_key", "sentinel_username", "sentinel_password",
)  # fmt: skip
_FORMS = {
    "redis": "redis://host:6379/0",
    "rediss": "rediss://host:6379/0",
    "redis+sentinel": "redis+sentinel://host1:26379,host2:26379/service/0",
    "redis+cluster": "redis+cluster://host1:6379,host2:6379",
}


class Place(NamedTuple):
    """Where it is. `shown` has no password in it."""

    kind: str
    hosts: list[tuple[str, int]]
    username: str | None
    password: str | None
    service: str
    db: int
    options: dict[str, str]
    shown: str

    @property
    def lease(self) -> int:
        """ms that a worker lives without a beat."""
        return round(float(self.options.get("lease", "30")) * 1000)

    @property
    def connections(self) -> int:
        """The most that an event loop has; who needs one more waits."""
        return int(self.options.get("max_connections", "16"))


def place_of(url: str) -> Place:
    kind = url.partition("://")[0]
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    shown = f"{kind}://{hosts}{parts.path}"
    options = dict(parse_qsl(parts.query))
    if unknown := options.keys() - set(_OPTIONS):
        raise StoreRefused(f"{shown}: unknown option {', '.join(sorted(unknown))}; known are {', '.join(_OPTIONS)}")
    port = 26379 if kind == "redis+sentinel" else 6379
    path = [part for part in parts.path.split("/") if part]
    service = path.pop(0) if kind == "redis+sentinel" and path else "mymaster"
    try:
        named = [_host(each, port) for each in hosts.split(",")] if hosts else [("localhost", port)]
        db = int(path[0]) if path else 0
        place = Place(kind, named, unquote(username) or None, unquote(password) or None, service, db, options, shown)
        if place.lease < 1 or place.connections < 1:
            raise ValueError("lease and max_connections must be more than nothing")  # noqa: TRY301
    except ValueError as error:
        raise StoreRefused(f"{shown}: {error}; such a URL looks like {_FORMS[kind]}") from None
    if (len(named) > 1 and kind in ("redis", "rediss")) or len(path) > 1 or (kind == "redis+cluster" and db):
        raise StoreRefused(f"{shown}: such a URL looks like {_FORMS[kind]}")
    return place


def _host(text: str, port: int) -> tuple[str, int]:
    if text.startswith("["):  # an address of IPv6
        name, _, rest = text[1:].partition("]")
        return name, int(rest.removeprefix(":") or port)
    name, _, number = text.partition(":")
    return name, int(number or port)
