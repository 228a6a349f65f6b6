"""TLS: verified, unless the URL says otherwise.

What does not leave this machine, nobody can listen in on: a server here is spoken to as it is. To any other, `sslmode`
is verify-full, against the authorities that the machine knows or `sslrootcert`. libpq's default ("prefer") is neither
verified nor always encrypted.
"""

from __future__ import annotations

import os
import ssl
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from onthedot.errors import StoreRefused
from onthedot.stores.postgres.url import PostgresAddress
from onthedot.stores.tls_advice import BUT, TlsAdvice

WAYS = TlsAdvice(
    "?sslrootcert=/path/to/ca.pem", "?sslcert=…&sslkey=…", "?sslmode=require encrypts without looking at it"
)
NO_TLS = f"it does not offer TLS: turn it on there, or ?sslmode=disable, {BUT}"
WANTS_TLS = "it takes only connections with TLS: add ?sslmode=verify-full"


def tls_of(address: PostgresAddress) -> ssl.SSLContext | str | bool | None:
    """For the driver; None: a service file says where and how."""
    said = dict(parse_qsl(urlsplit(address.dsn).query))
    if "service" in said or "PGSERVICE" in os.environ:
        return None
    mode = said.get("sslmode") or os.environ.get("PGSSLMODE")
    if mode is None and _is_here(address.dsn, said):
        return False
    mode = mode or "verify-full"
    for name in ("sslrootcert", "sslcert", "sslkey"):
        file = said.get(name)
        if file and file != "system" and not Path(file).is_file():
            raise StoreRefused(f"{address.where}: {name} names {file}, which is no file")
    if mode not in ("verify-ca", "verify-full") or _root(said) != "system":
        return mode
    context = ssl.create_default_context()  # the driver alone would want a file
    context.check_hostname = mode == "verify-full"
    if "sslcert" in said:
        context.load_cert_chain(said["sslcert"], said.get("sslkey"))
    return context


def _root(said: dict[str, str]) -> str:
    if given := said.get("sslrootcert") or os.environ.get("PGSSLROOTCERT"):
        return given
    usual = Path("~/.postgresql/root.crt").expanduser()
    return str(usual) if usual.is_file() else "system"


def _is_here(dsn: str, said: dict[str, str]) -> bool:
    named = urlsplit(dsn).netloc.rpartition("@")[2] or said.get("host") or os.environ.get("PGHOST", "")
    return all(_is_loopback(unquote(host)) for host in named.split(","))


def _is_loopback(host: str) -> bool:
    """A name, an address (of IPv6 in brackets), each with a port or without; a folder is that of a socket."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name in ("", "localhost") or name.startswith("/"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
