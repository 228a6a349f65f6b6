"""Settings from the environment: the URL of the store, and the version of this package."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from functools import cache

from onthedot.errors import DeclarationError
from onthedot.stores.masked_url import masked
from onthedot.stores.schemes import SCHEMES

DEFAULT_STORE = "sqlite:///onthedot.db"
URL_SCHEMES = tuple(name for scheme in SCHEMES for name in scheme.names)


def store_url(given: str | None) -> str:
    """Returns the given URL, else ``$ONTHEDOT_STORE``, else a file in the current folder."""
    url = given if given is not None else os.environ.get("ONTHEDOT_STORE") or DEFAULT_STORE
    if not isinstance(url, str):
        raise DeclarationError(f"store is of type {type(url).__name__}; pass a URL as text, as in {DEFAULT_STORE!r}")
    if "://" not in url or url.partition("://")[0] not in URL_SCHEMES:
        known = ", ".join(f"{each}://" for each in URL_SCHEMES)
        shown = masked(url)
        raise DeclarationError(f"store {shown!r} is not a store's URL; known are {known}{_suggestion(shown)}")
    return url


def _suggestion(url: str) -> str:
    """The end of the message about a wrong URL.

    >>> _suggestion("sqlit:///shop.db"), _suggestion("shop.db")
    ('; did you mean sqlite:///shop.db?', '; did you mean sqlite:///shop.db?')
    """
    scheme, mark, rest = url.rpartition("://")
    close = get_close_matches(scheme, URL_SCHEMES, n=1)
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
    """The version of this package, as it is installed."""
    from importlib import metadata  # a slow import that is rarely needed

    try:
        return metadata.version("onthedot")
    except metadata.PackageNotFoundError:
        return "(from its source, not installed)"
