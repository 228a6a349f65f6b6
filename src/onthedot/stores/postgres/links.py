"""Links and waits as JSON, as the database keeps them. Tasks of a group share their links, so texts are kept."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.json import Decoder

from onthedot.stores.contract import Links, Wait

_MAX_LINKS = 10_000
_encoded: dict[Links, Raw] = {}
_decoded: dict[str, Links] = {}
_decode = Decoder(Links).decode


def encode_wait(wait: Wait) -> Raw:
    """JSON without the fields that have their default."""
    return Raw(msgspec.json.encode(_wait_fields(wait)))


def encode_links(links: Links | None) -> Raw | UnsetType:
    """JSON without the fields that have their default."""
    if links is None:
        return UNSET
    encoded = _encoded.get(links)
    if encoded is None:
        if len(_encoded) >= _MAX_LINKS:
            _encoded.clear()
        encoded = _encoded[links] = Raw(msgspec.json.encode(_links_fields(links)))
    return encoded


def decode_links(text: str | None) -> Links | None:
    if text is None:
        return None
    links = _decoded.get(text)
    if links is None:
        if len(_decoded) >= _MAX_LINKS:
            _decoded.clear()
        links = _decoded[text] = _decode(text)
    return links


def _links_fields(links: Links) -> dict[str, object]:
    fields: dict[str, object] = {}
    if links.flow is not None:
        fields["flow"] = links.flow
    if links.increments:
        fields["increments"] = links.increments
    if links.waits is not None:
        fields["waits"] = _wait_fields(links.waits)
    return fields


def _wait_fields(wait: Wait) -> dict[str, object]:
    fields: dict[str, object] = {"counters": wait.counters}
    if wait.timeout is not None:
        fields["timeout"] = wait.timeout
    if wait.delay:
        fields["delay"] = wait.delay
    if wait.requires != "any":
        fields["requires"] = wait.requires
    return fields
