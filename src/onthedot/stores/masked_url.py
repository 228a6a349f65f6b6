"""URLs in messages: without user, password and options, also where the URL is mistyped."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from onthedot.errors import StoreRefused

_SCHEME = re.compile(r"[A-Za-z+]{1,20}")
_NO_PORT = re.compile(r"(?<=:)(?![0-9]+(?:[,/]|$))[^,/\[\]]+(?=[,/]|$)")  # behind a colon: a password without a host


def masked(url: str) -> str:
    """The URL as messages show it. Everything before the last @ may be part of a password.

    >>> masked("redis://:secret@cache:6379/0?lease=5"), masked("redi:/:secret@cache")
    ('redis://…@cache:6379/0', '…@cache')
    """
    head, at, tail = url.rpartition("@")
    place = re.split(r"[?#]", tail, maxsplit=1)[0]
    if not at:
        scheme, mark, place = place.rpartition("://")
        return scheme + mark + (_NO_PORT.sub("…", place) if mark else place)
    scheme, mark, _ = head.partition("://")
    return f"{scheme}://…@{place}" if mark and _SCHEME.fullmatch(scheme) else f"…@{place}"


def split_url(url: str) -> SplitResult:
    """The parts of a server's URL. StoreRefused: its password contains a character that ends the part before it."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreRefused(f"{masked(url)} is no URL: {error}") from None
    hosts = parts.netloc.rpartition("@")[2].split(",")
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    if "@" in parts.path + parts.fragment or not all(port.isdecimal() for port in ports if port):
        raise StoreRefused(
            f"{masked(url)}: the port is no number; such a URL looks like {parts.scheme}://user:password@host:1234/0, "
            "and / ? # and @ in the password are written as %2F %3F %23 and %40"
        )
    return parts
