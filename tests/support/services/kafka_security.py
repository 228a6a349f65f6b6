"""Listeners of a broker with TLS and with a login, beside the plain one, and rules about who may use a topic."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support.services.certificates import Certificates
from tests.support.services.kafka_server import PASSWORD, USER

LISTENERS = {"TLS": "SSL", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}  # name → protocol
_MODULES = "org.apache.kafka.common.security"


def security_settings(certificates: Certificates) -> dict[str, str]:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(_key_store(certificates)),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    for listener in ("login", "both"):
        prefix = f"listener.name.{listener}"
        plain = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        settings[f"{prefix}.plain.sasl.jaas.config"] = plain
        settings[f"{prefix}.scram-sha-512.sasl.jaas.config"] = f"{_MODULES}.scram.ScramLoginModule required;"
    return settings


def _key_store(certificates: Certificates) -> Path:
    """Java reads keys in the form PKCS 8 only."""
    chain, key = certificates.server()
    private = load_pem_private_key(key.read_bytes(), None)
    store = chain.with_name("key_store.pem")
    store.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain.read_bytes())
    return store
