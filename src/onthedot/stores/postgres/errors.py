"""Errors of Postgres as errors of the store: what happened, and what to do next."""

from __future__ import annotations

import asyncio
from typing import Any

from onthedot.errors import ArgumentError, StoreBusy, StoreError, StoreFull, StoreRefused, StoreUnavailable
from onthedot.stores.contract import MAX_KEPT_SIGNALS, DeadlinePassed
from onthedot.stores.postgres.tls import NEEDS_TLS, NO_TLS, TLS_ADVICE
from onthedot.stores.postgres.url import OPTIONS
from onthedot.stores.tls_advice import tls_advice

_WITHDRAWN = ("40001", "40P01")  # serialization failure, deadlock: the call can be repeated
_LOST = ("57P", "08", "25006")  # the server closes the connection; or it only reads now, after a failover
_LATE = "OTD01"  # raised by `refuse_late_v1`, with the time as its detail
_SURPLUS = "OTD02"  # raised by `refuse_surplus_v1`, with the name of the signals as its detail
_DATA = ("22", "23", "54")  # data exception, constraint violation, limit of the server: the value is the cause


def code_of(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def is_lost(error: BaseException) -> bool:
    """The connection is of no more use. The outcome of the call is unknown; it can be repeated on another one."""
    if isinstance(error, ConnectionError | EOFError | asyncio.IncompleteReadError):
        return True
    return type(error).__name__ in _BROKEN or code_of(error).startswith(_LOST)


def is_withdrawn(error: BaseException) -> bool:
    """The server rolled the call back in favour of another."""
    return code_of(error) in _WITHDRAWN


def translate(error: BaseException, where: str) -> Exception:
    """The error to raise. where: the server, for the message.

    `StoreRefused` ends a worker, so only the listed codes become one: login, rights, schema, version, configuration. A
    code that is not listed is worth another attempt.
    """
    code = code_of(error)
    if code == _LATE:
        return DeadlinePassed(float(getattr(error, "detail", None) or 0))
    if code == _SURPLUS:
        return StoreFull(
            f"{MAX_KEPT_SIGNALS} signals are kept under the name {getattr(error, 'detail', None)!r}: put an id into "
            "the name, or keep signals for a shorter time"
        )
    if advice := _tls_advice(str(error)):
        return StoreRefused(f"{where}: {_text(error)}; {advice}")
    for known, (kind, advice) in _ADVICE.items():
        if code.startswith(known):
            return kind(f"{where}: {_text(error)}; {advice}")
    if code.startswith(_DATA):
        return ArgumentError(f"Postgres cannot store it: {_text(error)} ({code})")
    if code and not is_lost(error):
        return StoreUnavailable(f"{where}: {_text(error)} ({code}); nothing was written, try again", stored=False)
    if isinstance(error, OSError | TimeoutError) or is_lost(error):
        question = "nothing was acknowledged; is it running, and is the address right?"
        return StoreUnavailable(f"{where}: {_text(error) or 'no answer'}; {question}")
    return error if isinstance(error, Exception) else StoreUnavailable(f"{where}: {error}")


def _tls_advice(text: str) -> str | None:
    if "rejected SSL upgrade" in text:
        return NO_TLS
    if "no pg_hba.conf entry" in text and text.endswith(("no encryption", "SSL off")):
        return NEEDS_TLS
    return tls_advice(text, TLS_ADVICE)


def _text(error: BaseException) -> str:
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
    "53": (StoreFull, "the server has no space left: nothing was written; free some space"),
    "58030": (StoreFull, "the server's disk does not answer or is full; nothing was acknowledged"),
    "25006": (StoreUnavailable, "this server only reads: name the one that writes"),
    "28": (StoreRefused, "user and password are in the store's URL, or in PGUSER and PGPASSWORD"),
    "3D": (StoreRefused, "make the database first: onthedot makes its tables, not the database"),
    "3F": (StoreRefused, _INSTALL),
    "26": (StoreRefused, _POOLER),
    "42P05": (StoreRefused, _POOLER),
    "42P01": (StoreRefused, _INSTALL),
    "42883": (StoreRefused, f"its schema is older than this onthedot: {_INSTALL}"),
    "42501": (StoreRefused, _RIGHTS),
    "42704": (StoreRefused, f"is it an option of the store's URL? Its own are {', '.join(OPTIONS)}"),
    "42": (StoreRefused, "the schema is not what this onthedot needs: run `onthedot schema check`"),
}
