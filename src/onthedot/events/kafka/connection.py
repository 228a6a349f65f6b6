"""Options of the clients of aiokafka: addresses, login, timeouts."""

from __future__ import annotations

import ssl
from typing import Any, TypeAlias

from onthedot.events.settings import Kafka

Client: TypeAlias = Any  # aiokafka has no type information

RETRY_PAUSE = 0.5  # seconds between two attempts to reach a server; aiokafka logs each of them


def client_options(settings: Kafka) -> dict[str, Any]:
    """The options that every client of aiokafka takes."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.servers,
        "client_id": settings.client_id,
        "retry_backoff_ms": int(RETRY_PAUSE * 1000),
        "request_timeout_ms": int(settings.request_timeout * 1000),
        "security_protocol": settings.security_protocol,
        "ssl_context": settings.ssl_context,
    }
    if settings.uses_ssl and settings.ssl_context is None:
        options["ssl_context"] = ssl.create_default_context()
    if settings.uses_sasl:
        options["sasl_mechanism"] = settings.sasl_mechanism
        options["sasl_plain_username"] = settings.sasl_username
        options["sasl_plain_password"] = settings.sasl_password
    return options


def reason_of(error: Exception) -> str:
    """A timeout has no text."""
    return str(error) or "no answer"
