"""TLS: verified, unless the URL turns it off.

A connection to this machine is not encrypted unless the URL asks for it. To any other server, `sslmode` is verify-full,
against the authorities that the machine knows or `sslrootcert`. libpq's default ("prefer") is neither verified nor
always encrypted.
"""

from __future__ import annotations

import os
import ssl
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from onthedot.errors import StoreRefused
from onthedot.stores.postgres.url import PostgresAddress
from onthedot.stores.tls_advice import UNVERIFIED, TlsAdvice

TLS_ADVICE = TlsAdvice(
    "?sslrootcert=/path/to/ca.pem", "?sslcert=…&sslkey=…", "?sslmode=require encrypts without verifying it"
)
NO_TLS = f"it does not offer TLS: turn it on there, or ?sslmode=disable, {UNVERIFIED}"
NEEDS_TLS = "it takes only connections with TLS: add ?sslmode=verify-full"


def tls_of(address: PostgresAddress) -> ssl.SSLContext | str | bool | None:
    """The argument for the driver; None: a service file names the server and its TLS."""
    options = dict(parse_qsl(urlsplit(address.dsn).query))
    if "service" in options or "PGSERVICE" in os.environ:
        return None
    mode = options.get("sslmode") or os.environ.get("PGSSLMODE")
    if mode is None and _is_local(address.dsn, options):
        return False
    mode = mode or "verify-full"
    for name in ("sslrootcert", "sslcert", "sslkey"):
        file = options.get(name)
        if file and file != "system" and not Path(file).is_file():
            raise StoreRefused(f"{address.where}: {name} names {file}, which is no file")
    if mode not in ("verify-ca", "verify-full") or _root(options) != "system":
        return mode
    context = ssl.create_default_context()  # the driver itself needs a file
    context.check_hostname = mode == "verify-full"
    if "sslcert" in options:
        context.load_cert_chain(options["sslcert"], options.get("sslkey"))
    return context


def _root(options: dict[str, str]) -> str:
    if given := options.get("sslrootcert") or os.environ.get("PGSSLROOTCERT"):
        return given
    usual = Path("~/.postgresql/root.crt").expanduser()
    return str(usual) if usual.is_file() else "system"


def _is_local(dsn: str, options: dict[str, str]) -> bool:
    hosts = urlsplit(dsn).netloc.rpartition("@")[2] or options.get("host") or os.environ.get("PGHOST", "")
    return all(_is_loopback(unquote(host)) for host in hosts.split(","))


def _is_loopback(host: str) -> bool:
    """host: a name or address (IPv6 in brackets), with or without a port; or the folder of a Unix socket."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name in ("", "localhost") or name.startswith("/"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
