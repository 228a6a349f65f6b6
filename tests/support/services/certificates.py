"""Certificates that are made when a test needs them, and belong to nobody."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Literal

import trustme

from tests.support.services.valkey import FREE

Kind = Literal["good", "elsewhere", "expired"]
HERE = ("localhost", "127.0.0.1")


@dataclass
class Certificates:
    """Of one authority, which no machine knows, in files of a folder."""

    folder: Path

    @cached_property
    def _authority(self) -> trustme.CA:
        return trustme.CA()

    @cached_property
    def ca(self) -> Path:
        self._authority.cert_pem.write_to_path(str(self.folder / "ca.pem"))
        return self.folder / "ca.pem"

    def server(self, kind: Kind = "good") -> tuple[Path, Path]:
        """The chain and the key of a server that is here, elsewhere by its name, or out of date."""
        names = ("elsewhere.example",) if kind == "elsewhere" else HERE
        until = datetime.now(UTC) - timedelta(days=1) if kind == "expired" else None
        made = self._authority.issue_cert(*names, not_after=until)
        chain, key = self.folder / f"{kind}.pem", self.folder / f"{kind}.key"
        chain.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(key))
        key.chmod(0o600)
        return chain, key

    def options(self) -> tuple[str, ...]:
        """What a Redis is told: TLS on a port of its own, beside the plain one for whoever looks after it."""
        chain, key = self.server()
        files = ("--tls-cert-file", str(chain), "--tls-key-file", str(key), "--tls-ca-cert-file", str(self.ca))
        return ("--tls-port", FREE, *files, "--tls-auth-clients", "no")
