"""What the environment says: which store, which version."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from functools import cache

from onthedot.errors import DeclarationError

DEFAULT_STORE = "sqlite:///onthedot.db"
SCHEMES = ("memory", "sqlite", "redis", "rediss", "redis+sentinel", "redis+cluster", "postgresql", "postgres")


def store_url(given: str | None) -> str:
    """Given wins; else ``ONTHEDOT_STORE``; else a file in the current folder."""
    url = given if given is not None else os.environ.get("ONTHEDOT_STORE") or DEFAULT_STORE
    scheme = url.partition("://")[0] if isinstance(url, str) and "://" in url else ""
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise DeclarationError(f"store {url!r} is not a store's URL; known are {known}{_meant(url)}")
    return url


def _meant(url: object) -> str:
    """The end of a message about a URL that is none.

    >>> _meant("sqlit:///shop.db"), _meant("shop.db")
    ('; did you mean sqlite:///shop.db?', '; did you mean sqlite:///shop.db?')
    """
    if not isinstance(url, str):
        return ""
    scheme, mark, rest = url.rpartition("://")
    close = get_close_matches(scheme, SCHEMES, n=1)
    if mark:
        meant = f"{close[0]}://{rest}" if close else ""
    elif url.startswith("sqlite:"):
        meant = f"sqlite:///{url.removeprefix('sqlite:')}"
    elif (found := re.search(r":(6379|5432)\b", url)) is not None:
        meant = f"{'redis' if found[1] == '6379' else 'postgresql'}://{url}"
    else:
        meant = f"sqlite:///{url}" if url.endswith((".db", ".sqlite", ".sqlite3")) else ""
    return f"; did you mean {meant}?" if meant else ""


@cache
def version() -> str:
    """Of this package, as it is installed."""
    from importlib import metadata  # slow, and rarely wanted

    try:
        return metadata.version("onthedot")
    except metadata.PackageNotFoundError:
        return "(from its source, not installed)"
