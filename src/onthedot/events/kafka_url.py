"""kafka://user:password@h1:9092,h2:9092?security_protocol=SASL_SSL&sasl_mechanism=PLAIN"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_type_hints
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import ValidationError, convert

from onthedot.errors import DeclarationError
from onthedot.stores.masked_url import masked

_FORM = "kafka://host1:9092,host2:9092?option=value"


def parse_kafka_url(url: str, settings: type, without: Collection[str]) -> tuple[str, dict[str, Any]]:
    """The servers and the fields of a URL. Fields that cannot be read are texts, which the settings refuse.

    without: fields that a URL cannot have.
    """
    if not isinstance(url, str) or not url.startswith("kafka://"):
        raise DeclarationError(f"{masked(str(url))!r} is not a Kafka URL; such a URL looks like {_FORM}")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise DeclarationError(f"{masked(url)} is not a URL: {error}") from None
    if parts.path.strip("/") or parts.fragment:
        raise DeclarationError(
            f"{masked(url)}: a URL of Kafka has no path; it looks like {_FORM}, and / ? # and @ in a password are "
            "written as %2F %3F %23 and %40"
        )
    login, _, servers = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    hints = get_type_hints(settings, include_extras=True)
    options: dict[str, Any] = {"sasl_username": unquote(username) or None, "sasl_password": unquote(password) or None}
    options = {name: value for name, value in options.items() if value is not None}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name in without:
            raise DeclarationError(f"{masked(url)}: {name} cannot be an option of a URL; write Kafka(…)")
        options[name] = _value(text, hints.get(name, str))
    return servers, options


def _value(text: str, hint: Any) -> Any:
    try:
        return convert(text, hint, strict=False)
    except ValidationError:
        return text
