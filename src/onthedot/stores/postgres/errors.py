"""What Postgres complains about, in words that say what to do."""

from __future__ import annotations

import asyncio
from typing import Any

from onthedot.errors import StoreBusy, StoreError, StoreFull, StoreRefused, StoreUnavailable
from onthedot.stores.postgres.tls import NO_TLS, WANTS_TLS, WAYS
from onthedot.stores.tls_advice import tls_advice

_AGAIN = ("40001", "40P01")  # the server took it back so that others could go on
_GONE = ("57P01", "57P02", "57P03", "08")  # the connection is of no use any more


def code_of(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def is_lost(error: BaseException) -> bool:
    """The connection broke: what became of the call is not known, and it may be repeated on another one."""
    if isinstance(error, ConnectionError | EOFError | asyncio.IncompleteReadError):
        return True
    return type(error).__name__ in _BROKEN or code_of(error).startswith(_GONE)


def is_withdrawn(error: BaseException) -> bool:
    return code_of(error) in _AGAIN


def explained(error: BaseException, where: str) -> Exception:
    code = code_of(error)
    if advice := _about_tls(str(error)):
        return StoreRefused(f"{where}: {_words(error)}; {advice}")
    for known, (kind, advice) in _ADVICE.items():
        if code.startswith(known):
            return kind(f"{where}: {_words(error)}; {advice}")
    if code.startswith("22"):  # something in what was handed in
        return ValueError(f"Postgres cannot store it: {_words(error)}")
    if code and not is_lost(error):
        return StoreRefused(f"{where}: {_words(error)} ({code})")
    if isinstance(error, OSError | TimeoutError) or is_lost(error):
        doubts = "nothing was acknowledged; is it running, and is the address right?"
        return StoreUnavailable(f"{where}: {_words(error) or 'no answer'}; {doubts}")
    return error if isinstance(error, Exception) else StoreUnavailable(f"{where}: {error}")


def _about_tls(text: str) -> str | None:
    if "rejected SSL upgrade" in text:
        return NO_TLS
    if "no pg_hba.conf entry" in text and text.endswith(("no encryption", "SSL off")):
        return WANTS_TLS
    return tls_advice(text, WAYS)


def _words(error: BaseException) -> str:
    detail: Any = getattr(error, "detail", None)
    return f"{error} ({detail})" if detail else str(error)


_BROKEN = ("ConnectionDoesNotExistError", "ConnectionFailureError", "InterfaceError", "InternalClientError")
_INSTALL = "run `onthedot schema install`, or leave auto_schema on"
_POOLER = "a pooler in transaction mode is in between: add ?statement_cache_size=0"
_RIGHTS = (
    "this user has no right to it: the owner of the database runs `onthedot schema install`, then what "
    "`onthedot schema print --role USER` prints"
)
_ADVICE: dict[str, tuple[type[StoreError], str]] = {
    "55P03": (StoreBusy, "others held it for 4 s; nothing was written, try again"),
    "40": (StoreBusy, "the server withdrew it for others; nothing was written, try again"),
    "57014": (StoreBusy, "it took too long; nothing was written, try again"),
    "53300": (StoreBusy, "the server has no connection left: raise max_connections, or put a pooler before it"),
    "53": (StoreFull, "the server has no room left: nothing was written; free some space"),
    "58030": (StoreFull, "the server's disk does not answer or is full; nothing was acknowledged"),
    "25006": (StoreRefused, "this server only reads: name the one that writes"),
    "28": (StoreRefused, "user and password are in the store's URL, or in PGUSER and PGPASSWORD"),
    "3D": (StoreRefused, "make the database first: onthedot makes its tables, not the database"),
    "3F": (StoreRefused, _INSTALL),
    "26": (StoreRefused, _POOLER),
    "42P05": (StoreRefused, _POOLER),
    "42P01": (StoreRefused, _INSTALL),
    "42883": (StoreRefused, f"its schema is older than this onthedot: {_INSTALL}"),
    "42501": (StoreRefused, _RIGHTS),
    "42": (StoreRefused, "the schema is not what this onthedot needs: run `onthedot schema check`"),
}
