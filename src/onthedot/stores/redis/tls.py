"""TLS as the URL wants it: verified, unless somebody says otherwise."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from onthedot.errors import StoreRefused
from onthedot.stores.redis.url import Place

_FILES = {"ssl_ca_certs": "tls_ca", "ssl_certfile": "tls_cert", "ssl_keyfile": "tls_key"}  # redis-py's names, and ours


def settings(place: Place) -> dict[str, Any]:
    """For redis-py, by all its versions: older ones do not look at the host's name by themselves."""
    if not place.tls:
        return {}
    files = {theirs: place.options[name] for theirs, name in _FILES.items() if name in place.options}
    required = "required" if place.verified else "none"
    return {**files, "ssl": True, "ssl_cert_reqs": required, "ssl_check_hostname": place.verified}


def check(place: Place) -> None:
    for name in _FILES.values():
        file = place.options.get(name)
        if file is not None and not Path(file).is_file():
            raise StoreRefused(f"{place.shown}: {name} names {file}, which is no file")


def context(place: Place) -> ssl.SSLContext | None:
    """For connections of ours. The authorities of the system count beside `tls_ca`, as they do for redis-py."""
    if not place.tls:
        return None
    made = ssl.create_default_context()
    if not place.verified:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if "tls_ca" in place.options:
        made.load_verify_locations(place.options["tls_ca"])
    if "tls_cert" in place.options or "tls_key" in place.options:
        made.load_cert_chain(place.options.get("tls_cert", ""), place.options.get("tls_key"))
    return made
