"""TLS as the URL wants it: verified, unless somebody says otherwise."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from onthedot.errors import StoreRefused
from onthedot.stores.redis.url import RedisAddress

_FILES = {"ssl_ca_certs": "tls_ca", "ssl_certfile": "tls_cert", "ssl_keyfile": "tls_key"}  # redis-py's names, and ours


def settings(address: RedisAddress) -> dict[str, Any]:
    """For redis-py, by all its versions: older ones do not look at the host's name by themselves."""
    if not address.tls:
        return {}
    files = {theirs: address.options[name] for theirs, name in _FILES.items() if name in address.options}
    required = "required" if address.verified else "none"
    return {**files, "ssl": True, "ssl_cert_reqs": required, "ssl_check_hostname": address.verified}


def check(address: RedisAddress) -> None:
    for name in _FILES.values():
        file = address.options.get(name)
        if file is not None and not Path(file).is_file():
            raise StoreRefused(f"{address.shown}: {name} names {file}, which is no file")


def context(address: RedisAddress) -> ssl.SSLContext | None:
    """For connections of ours. The authorities of the system count beside `tls_ca`, as they do for redis-py."""
    if not address.tls:
        return None
    made = ssl.create_default_context()
    if not address.verified:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if "tls_ca" in address.options:
        made.load_verify_locations(address.options["tls_ca"])
    if "tls_cert" in address.options or "tls_key" in address.options:
        made.load_cert_chain(address.options.get("tls_cert", ""), address.options.get("tls_key"))
    return made
