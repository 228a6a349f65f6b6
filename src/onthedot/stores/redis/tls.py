"""TLS by the options of the URL: verified, unless they turn it off."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from onthedot.errors import StoreRefused
from onthedot.stores.redis.url import RedisAddress

_FILES = {"ssl_ca_certs": "tls_ca", "ssl_certfile": "tls_cert", "ssl_keyfile": "tls_key"}  # redis-py's name → ours


def settings(address: RedisAddress) -> dict[str, Any]:
    """For redis-py. Older versions check the host name only on request."""
    if not address.tls:
        return {}
    files = {theirs: address.options[name] for theirs, name in _FILES.items() if name in address.options}
    required = "required" if address.verified else "none"
    return {**files, "ssl": True, "ssl_cert_reqs": required, "ssl_check_hostname": address.verified}


def check(address: RedisAddress) -> None:
    for name in _FILES.values():
        file = address.options.get(name)
        if file is not None and not Path(file).is_file():
            raise StoreRefused(f"{address.shown}: {name} names {file}, which does not exist")


def context(address: RedisAddress) -> ssl.SSLContext | None:
    """For our own connections. `tls_ca` adds to the authorities of the system, as with redis-py."""
    if not address.tls:
        return None
    context = ssl.create_default_context()
    if not address.verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "tls_ca" in address.options:
        context.load_verify_locations(address.options["tls_ca"])
    if "tls_cert" in address.options or "tls_key" in address.options:
        context.load_cert_chain(address.options.get("tls_cert", ""), address.options.get("tls_key"))
    return context
