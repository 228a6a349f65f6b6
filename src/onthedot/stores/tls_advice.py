"""What to do when the two ends of a TLS connection do not agree, in words; for stores on servers."""

from __future__ import annotations

from typing import NamedTuple

UNVERIFIED = "but then others may read and change tasks"


class TlsAdvice(NamedTuple):
    """How a URL of this kind says it."""

    ca: str
    ours: str
    off: str


_WORDS = (  # of OpenSSL, in the order they are looked for
    ("CERTIFICATE_REQUIRED", "it wants a certificate of ours: {ours}"),
    ("mismatch", "its certificate is for another host: use the name that stands in it, {off}"),
    ("has expired", "its certificate is out of date: renew it there, {off}"),
    ("CERTIFICATE_VERIFY_FAILED", "nobody known has signed its certificate: {ca} names who has, {off}"),
)


def tls_advice(text: str, ways: TlsAdvice) -> str | None:
    """Advice on an error of TLS; None: it is about something else. No second try mends it.

    >>> ways = Ways("tls_ca=FILE", "tls_cert=FILE", "tls_insecure=1")
    >>> distrusted("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired", ways)
    'its certificate is out of date: renew it there, or tls_insecure=1, but then others may read and change tasks'
    """
    if "SSL" not in text and "certificate" not in text:
        return None
    for word, advice in _WORDS:
        if word in text:
            off = f"or {ways.off}, {UNVERIFIED}"
            return advice.format(ca=ways.ca, ours=ways.ours, off=off)
    return None
