"""Settings of the HTTP API: address, credentials, public address."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import ip_address
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from onthedot.errors import DeclarationError
from onthedot.observability.meter import MAX_NAMES

Role: TypeAlias = Literal["viewer", "operator"]

DEFAULT_PORT = 8123
MIN_TOKEN = 16  # characters of a token that is not generated
_USER_NAME = re.compile(r"[A-Za-z0-9_@-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"(/[A-Za-z0-9_.~-]+)*")


class User(NamedTuple):
    """A person or program, as it is known to the audit. role: a viewer reads, an operator also changes.

    >>> User("ana", "operator")
    User(name='ana', role='operator')
    """

    name: str
    role: Role


class Credential(NamedTuple):
    """A user and the SHA-256 of the token that signs in as this user."""

    user: User
    digest: bytes


def token_credential(name: str, role: Role, token: str) -> Credential:
    if len(token) < MIN_TOKEN:
        raise DeclarationError(f"the token of {name} has {len(token)} characters, and needs at least {MIN_TOKEN}")
    return Credential(User(name, role), sha256(token.encode()).digest())


def new_token() -> str:
    """A token of 32 random bytes, for URLs."""
    return secrets.token_urlsafe(32)


def parse_users(text: str) -> tuple[Credential, ...]:
    """Users as ``name:role:sha256hex,…``; the last part is the SHA-256 of a user's token.

    >>> [each.user.name for each in parse_users(f"ana:operator:{'0' * 64},ben:viewer:{'1' * 64}")]
    ['ana', 'ben']
    """
    found: list[Credential] = []
    for part in filter(None, map(str.strip, text.split(","))):
        name, role, digest, *more = [*part.split(":"), "", ""]
        if any(more) or not _USER_NAME.fullmatch(name) or not _DIGEST.fullmatch(digest.lower()):
            raise DeclarationError(f"user {name!r}: write name:role:sha256hex, as in ana:operator:9f86d0…")
        match role:
            case "viewer" | "operator":
                found.append(Credential(User(name, role), bytes.fromhex(digest)))
            case _:
                raise DeclarationError(f"user {name!r}: the role is viewer or operator, not {role!r}")
    return tuple(found)


@dataclass(frozen=True)
class WebSettings:
    """The address of the HTTP API and its users.

    host, port: the address that it binds; of an app that is mounted in another one, they mean nothing
    credentials: the users that a token signs in
    read_only: everybody is a viewer
    public_url: where a proxy serves it, as in ``https://ops.example.com/tasks``
    prefix: the path below which it is served; by default that of `public_url`
    insecure: allow plain HTTP on a public address
    environment: a name that the page shows, such as ``production``
    access_log: log every request
    trace_url: an address with ``{trace_id}``, to which the page links traces
    metrics_sources: sources that ``/metrics`` keeps apart
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    credentials: tuple[Credential, ...] = field(default=(), repr=False)
    read_only: bool = False
    public_url: str = ""
    prefix: str = ""
    insecure: bool = False
    environment: str = ""
    access_log: bool = False
    trace_url: str = ""
    metrics_sources: int = MAX_NAMES

    def __post_init__(self) -> None:
        if self.public_url:
            parts = urlsplit(self.public_url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise DeclarationError(f"public URL {self.public_url!r}: write https://host/prefix")
        if not _PREFIX.fullmatch(self.base_path):
            raise DeclarationError(f"prefix {self.base_path!r} is no path; write /ops/tasks")
        names = [each.user.name for each in self.credentials]
        if len(set(names)) < len(names):
            raise DeclarationError(f"users with the same name: {', '.join(sorted(names))}")

    @property
    def base_path(self) -> str:
        """The path below which it is served, without a slash at the end; "" at the root."""
        return (self.prefix or urlsplit(self.public_url).path).rstrip("/")

    @property
    def is_https(self) -> bool:
        """Whether browsers reach it by https."""
        return self.public_url.startswith("https://")

    def check_bind(self) -> None:
        """Refuse a public address without credentials or without TLS in front of it."""
        if is_loopback(self.host):
            return
        if not self.credentials:
            raise DeclarationError(
                f"{self.host} is reached from other machines, and there is no token: set ONTHEDOT_WEB_TOKEN or "
                "--token-file, or bind 127.0.0.1"
            )
        if not self.is_https and not self.insecure:
            raise DeclarationError(
                f"{self.host} is reached from other machines, and tokens would travel as plain text: name the https "
                "address of your proxy by --public-url, or allow it by --insecure"
            )


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def credentials_from(environment: Mapping[str, str]) -> tuple[Credential, ...]:
    """The users of ``ONTHEDOT_WEB_TOKEN``, ``ONTHEDOT_WEB_VIEWER_TOKEN`` and ``ONTHEDOT_WEB_USERS``."""
    found = [*parse_users(environment.get("ONTHEDOT_WEB_USERS", ""))]
    if token := environment.get("ONTHEDOT_WEB_TOKEN"):
        found.append(token_credential("operator", "operator", token))
    if token := environment.get("ONTHEDOT_WEB_VIEWER_TOKEN"):
        found.append(token_credential("viewer", "viewer", token))
    return tuple(found)
