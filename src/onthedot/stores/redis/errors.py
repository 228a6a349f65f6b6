"""Errors of Redis as StoreErrors, with advice."""

from __future__ import annotations

from onthedot.errors import ArgumentError, StoreBusy, StoreError, StoreFull, StoreRefused, StoreUnavailable
from onthedot.stores.tls_advice import TlsAdvice, tls_advice

_DOUBTS = "is it running, is the address right, and is TLS on both sides or on neither?"
_WAYS = TlsAdvice("?tls_ca=/path/to/ca.pem", "?tls_cert=…&tls_key=…", "?tls_insecure=1")

_CLUSTER = "RedisClusterException"  # no node answers, or none has our slot; it is no RedisError

_RIGHTS = (
    "this user needs the keys ~onthedot:*, the channels &onthedot:* and our commands: "
    "`onthedot schema print --role USER` prints them"
)
_LOGIN = "user or password is wrong, or missing: redis://user:password@host"
_ADVICE: tuple[tuple[str, str, type[StoreError], str], ...] = (  # class of the driver, text of the server
    ("OutOfMemoryError", "OOM ", StoreFull, "its memory is full, nothing was stored: raise maxmemory"),
    ("", "BUSY ", StoreBusy, "another script runs there and does not end"),
    ("MaxClientsError", "max number of clients", StoreBusy, "it has too many clients: raise maxclients"),
    ("BusyLoadingError", "LOADING ", StoreUnavailable, "it is still loading its data"),
    ("MasterDownError", "MASTERDOWN", StoreUnavailable, "it is a replica that has lost its master"),
    ("ReadOnlyError", "READONLY", StoreUnavailable, "it is a replica: name the master, or use redis+sentinel://"),
    ("MasterNotFoundError", "No master found", StoreUnavailable, f"no sentinel knows the master; {_DOUBTS}"),
    ("ClusterDownError", "CLUSTERDOWN", StoreUnavailable, "the cluster is down"),
    ("TryAgainError", "TRYAGAIN", StoreUnavailable, "the cluster is moving our slot"),
    ("AskError", "-ASK ", StoreUnavailable, "the cluster is moving our slot: calls wait until it has moved"),
    ("", "MISCONF", StoreUnavailable, "it cannot save to its disk and takes no writes"),
    ("", "NOREPLICAS", StoreUnavailable, "too few replicas answer it"),
    ("AuthenticationError", "WRONGPASS", StoreRefused, _LOGIN),
    ("", "NOAUTH", StoreRefused, _LOGIN),
    ("", "AUTH <password> called", StoreRefused, _LOGIN),  # without a password there
    ("NoPermissionError", "NOPERM", StoreRefused, _RIGHTS),
    ("", "WRONGTYPE", StoreRefused, "a key of ours holds something else: does another program write below onthedot:?"),
)  # fmt: skip


class ServerError(Exception):
    """An error reply; its first word is the kind."""


def explained(error: Exception, where: str) -> Exception:
    """As a StoreError; other errors stay as they are."""
    text = str(error).rstrip(".") or type(error).__name__  # the advice follows
    if advice := tls_advice(text, _WAYS):
        return StoreRefused(f"{where}: {text}; {advice}")
    for kind, pattern, ours, advice in _ADVICE:
        if pattern in text or (kind and _is(error, kind)):
            return ours(f"{where}: {text.partition(' : ')[0]}; {advice}")  # the rest describes objects of the driver
    if "DIGESTCLASH" in text:
        return ArgumentError(f"{where}: another source or policy has the same digest; change a tag or the task's name")
    if is_answer(error):
        return StoreRefused(f"{where}: {text}")
    if isinstance(error, OSError | TimeoutError) or _is(error, "RedisError", "HiredisError", _CLUSTER):
        return StoreUnavailable(f"{where}: {text}; {_DOUBTS}")
    return error


def _is(error: BaseException, *names: str) -> bool:
    """By name, since the drivers are imported only where they are used."""
    return any(
        kind.__name__ in names and kind.__module__.startswith(("redis", "hiredis")) for kind in type(error).__mro__
    )


_OTHER_SERVER = (
    "READONLY",
    "MASTERDOWN",
    "LOADING ",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "max number of clients",
)  # or the same server, later
_PASSING = (
    "ConnectionError", "TimeoutError", "ReadOnlyError", "MasterDownError",
    "TryAgainError", "ClusterDownError", "AskError", _CLUSTER,
)  # fmt: skip


def is_answer(error: BaseException) -> bool:
    """A refusal over a good connection, by a server that is still the master."""
    if isinstance(error, ServerError):
        return not _needs_other_server(error)
    return _is(error, "ResponseError") and not _is(error, "ConnectionError", "ReadOnlyError", "MasterDownError")


def _needs_other_server(error: BaseException) -> bool:
    return any(text in str(error) for text in _OTHER_SERVER)


def is_refusal(error: BaseException) -> bool:
    """An error reply: the script was not run, or not to its end."""
    return isinstance(error, ServerError) or (_is(error, "ResponseError") and not _is(error, "ConnectionError"))


def is_moved(error: BaseException) -> bool:
    """Another node of the cluster has the slot now."""
    return _is(error, "MovedError")


def is_node_lost(error: BaseException) -> bool:
    """Another node of the cluster may have become the master of the slot."""
    lost = isinstance(error, OSError) or _is(error, "ConnectionError", "TimeoutError", "ClusterDownError", _CLUSTER)
    return lost and not _is(error, "MaxConnectionsError")


def is_unknown_script(error: BaseException) -> bool:
    return _is(error, "NoScriptError") or (isinstance(error, ServerError) and str(error).startswith("NOSCRIPT"))


def may_pass(error: Exception) -> bool:
    """A repeat may succeed; every call can be repeated."""
    if tls_advice(str(error), _WAYS):
        return False
    if isinstance(error, ServerError):
        return _needs_other_server(error)
    return (isinstance(error, OSError | TimeoutError) or _is(error, *_PASSING)) and not _is(
        error, "AuthenticationError"
    )
