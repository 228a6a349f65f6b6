"""Certificates that are created for a test."""

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
    """Certificates of one authority that no machine trusts, as files in a folder."""

    folder: Path

    @cached_property
    def _authority(self) -> trustme.CA:
        return trustme.CA()

    @cached_property
    def ca(self) -> Path:
        self._authority.cert_pem.write_to_path(str(self.folder / "ca.pem"))
        return self.folder / "ca.pem"

    def server(self, kind: Kind = "good") -> tuple[Path, Path]:
        """Chain and key of a server: valid, for another host name, or expired."""
        names = ("elsewhere.example",) if kind == "elsewhere" else HERE
        until = datetime.now(UTC) - timedelta(days=1) if kind == "expired" else None
        made = self._authority.issue_cert(*names, not_after=until)
        chain = self.folder / f"{kind}.pem"
        key = self.folder / f"{kind}.key"
        chain.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(key))
        key.chmod(0o600)
        return chain, key

    def options(self) -> tuple[str, ...]:
        """Options of a Redis server: TLS on a separate port, beside the plain one for the tests."""
        chain, key = self.server()
        files = ("--tls-cert-file", str(chain), "--tls-key-file", str(key), "--tls-ca-cert-file", str(self.ca))
        return ("--tls-port", FREE, *files, "--tls-auth-clients", "no")
