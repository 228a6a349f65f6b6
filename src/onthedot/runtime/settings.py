"""Settings from the environment: the URL of the store and the code release; and the version of this package."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from functools import cache

from onthedot.errors import DeclarationError
from onthedot.stores.masked_url import masked
from onthedot.stores.schemes import SCHEMES

DEFAULT_STORE = "sqlite:///onthedot.db"
_SCHEMES_BY_PORT = {"6379": "redis", "5432": "postgresql"}
URL_SCHEMES = tuple(name for scheme in SCHEMES for name in scheme.names)


def store_url(given: str | None) -> str:
    """Returns the given URL, else ``$ONTHEDOT_STORE``, else a file in the current folder."""
    url = given
    if url is None:
        url = os.environ.get("ONTHEDOT_STORE") or DEFAULT_STORE
    known = ", ".join(f"{each}://" for each in URL_SCHEMES)
    if not isinstance(url, str):
        raise DeclarationError(
            f"store {masked(repr(url))} is not a store's URL, but of type {type(url).__name__}; known are {known}"
        )
    if "://" not in url or url.partition("://")[0] not in URL_SCHEMES:
        shown = masked(url)
        raise DeclarationError(f"store {shown!r} is not a store's URL; known are {known}{_suggestion(shown)}")
    return url


def _suggestion(url: str) -> str:
    """The end of the message about a wrong URL."""
    if meant := _nearest_url(url):
        return f"; did you mean {meant}?"
    return ""


def _nearest_url(url: str) -> str:
    """
    >>> _nearest_url("sqlit:///shop.db"), _nearest_url("shop.db"), _nearest_url("localhost:6379")
    ('sqlite:///shop.db', 'sqlite:///shop.db', 'redis://localhost:6379')
    """
    scheme, mark, rest = url.rpartition("://")
    if mark:
        return next((f"{close}://{rest}" for close in get_close_matches(scheme, URL_SCHEMES, n=1)), "")
    if url.startswith("sqlite:"):
        return f"sqlite:///{url.removeprefix('sqlite:')}"
    if port := re.search(r":(6379|5432)\b", url):
        return f"{_SCHEMES_BY_PORT[port[1]]}://{url}"
    if url.endswith((".db", ".sqlite", ".sqlite3")):
        return f"sqlite:///{url}"
    return ""


def code_release() -> str:
    """The version of the user's code: ``$ONTHEDOT_RELEASE``."""
    return os.environ.get("ONTHEDOT_RELEASE", "")


@cache
def version() -> str:
    """The version of this package, as it is installed."""
    from importlib import metadata  # a slow import that is rarely needed

    try:
        return metadata.version("onthedot")
    except metadata.PackageNotFoundError:
        return "(from its source, not installed)"
