"""Advice for errors of TLS: what to change in the URL or on the server."""

from __future__ import annotations

from typing import NamedTuple

UNVERIFIED = "but then others may read and change tasks"


class TlsAdvice(NamedTuple):
    """The options of a store's URL."""

    ca: str  # names the authority that signed the server's certificate
    ours: str  # names the client's certificate
    off: str  # turns the verification off


_CAUSES = (  # texts of OpenSSL, in the order in which they are searched
    ("CERTIFICATE_REQUIRED", "it wants a certificate of ours: {ours}"),
    ("mismatch", "its certificate is for another host: use a name that is in it, {off}"),
    ("has expired", "its certificate is out of date: renew it there, {off}"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not signed by a known authority: {ca} names one, {off}"),
)


def tls_advice(text: str, options: TlsAdvice) -> str | None:
    """Advice on an error of TLS, which no retry helps; None: another kind of error.

    >>> options = TlsAdvice("tls_ca=FILE", "tls_cert=FILE", "tls_insecure=1")
    >>> tls_advice("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired", options)
    'its certificate is out of date: renew it there, or tls_insecure=1, but then others may read and change tasks'
    """
    if "SSL" not in text and "certificate" not in text:
        return None
    for cause, advice in _CAUSES:
        if cause in text:
            return advice.format(ca=options.ca, ours=options.ours, off=f"or {options.off}, {UNVERIFIED}")
    return None
