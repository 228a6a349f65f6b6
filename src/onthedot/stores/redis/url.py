"""redis://user:password@host:6379/0, rediss:// with TLS, redis+sentinel://h1:26379,h2/service/0, redis+cluster://h1,h2."""

from __future__ import annotations

from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

from onthedot.errors import StoreRefused
from onthedot.stores.masked_url import split_url

_TLS = ("tls_ca", "tls_cert", "tls_key", "tls_insecure")
_OPTIONS = ("lease", "max_connections", "wait", "tls", *_TLS, "sentinel_username", "sentinel_password")
_ALIASES = {"ssl_ca_certs": "tls_ca", "ssl_certfile": "tls_cert", "ssl_keyfile": "tls_key"}  # redis-py's names
_YES = ("1", "true")
_NO = ("0", "false")
_FORMS = {
    "redis": "redis://host:6379/0",
    "rediss": "rediss://host:6379/0",
    "redis+sentinel": "redis+sentinel://host1:26379,host2:26379/service/0",
    "redis+cluster": "redis+cluster://host1:6379,host2:6379",
}


N = TypeVar("N", int, float)


class RedisAddress(NamedTuple):
    """The parsed URL. `shown` is the URL without the password."""

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
        """ms that a session lives without a heartbeat."""
        return round(self._number("lease", "30", float) * 1000)

    @property
    def connections(self) -> int:
        """The most connections of an event loop; a call beyond them waits."""
        return self._number("max_connections", "16", int)

    @property
    def wait(self) -> int:
        """The number of replicas that must confirm an add."""
        return self._number("wait", "0", int)

    def _number(self, name: str, default: str, kind: type[N]) -> N:
        text = self.options.get(name, default)
        try:
            return kind(text)
        except ValueError:
            what = "a whole number" if kind is int else "a number of seconds"
            raise ValueError(f"{name}={text} is not {what}") from None

    @property
    def tls(self) -> bool:
        return self.kind == "rediss" or self.options.get("tls") in _YES

    @property
    def verified(self) -> bool:
        """The server's certificate and host name are checked."""
        return self.options.get("tls_insecure") not in _YES


def parse_url(url: str) -> RedisAddress:
    kind = url.partition("://")[0]
    parts = split_url(url)
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    shown = f"{kind}://{hosts}{parts.path}"
    options = {_ALIASES.get(name, name): value for name, value in parse_qsl(parts.query)}
    if unknown := options.keys() - set(_OPTIONS):
        raise StoreRefused(f"{shown}: unknown option {', '.join(sorted(unknown))}; known are {', '.join(_OPTIONS)}")
    port = 26379 if kind == "redis+sentinel" else 6379
    path = [part for part in parts.path.split("/") if part]
    service = path.pop(0) if kind == "redis+sentinel" and path else "mymaster"
    try:
        named = [_host(each, port) for each in hosts.split(",")] if hosts else [("localhost", port)]
        db = int(path[0]) if path else 0
        address = RedisAddress(
            kind, named, unquote(username) or None, unquote(password) or None, service, db, options, shown
        )
        _check(address)
    except ValueError as error:
        raise StoreRefused(f"{shown}: {error}; such a URL looks like {_FORMS[kind]}") from None
    if (len(named) > 1 and kind in ("redis", "rediss")) or len(path) > 1 or (kind == "redis+cluster" and db):
        raise StoreRefused(f"{shown}: such a URL looks like {_FORMS[kind]}")
    return address


def _check(address: RedisAddress) -> None:
    if address.lease < 1 or address.connections < 1:
        raise ValueError("lease and max_connections must be greater than 0")
    if address.wait < 0 or (address.wait and address.kind == "redis+cluster"):
        raise ValueError("wait is a number of replicas of one master, not of a cluster")
    for name in ("tls", "tls_insecure"):
        if address.options.get(name, "0") not in (*_YES, *_NO):
            raise ValueError(f"{name}={address.options[name]} is neither 1 nor 0")
    if not address.tls and (without := [name for name in _TLS if name in address.options]):
        raise ValueError(f"{', '.join(without)} without TLS: write rediss://, or tls=1 with Sentinel or a cluster")


def _host(text: str, port: int) -> tuple[str, int]:
    if text.startswith("["):  # IPv6
        name, _, rest = text[1:].partition("]")
        return name, int(rest.removeprefix(":") or port)
    name, _, number = text.partition(":")
    return name, int(number or port)
