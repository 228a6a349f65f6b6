"""What the environment says: which store, which version."""

from __future__ import annotations

import os
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
        raise DeclarationError(f"store {url!r} is not a store's URL; known are {known}")
    return url


@cache
def version() -> str:
    """Of this package, as it is installed."""
    from importlib import metadata  # slow, and rarely wanted

    try:
        return metadata.version("onthedot")
    except metadata.PackageNotFoundError:
        return "(from its source, not installed)"
