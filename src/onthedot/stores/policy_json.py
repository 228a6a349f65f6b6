"""Policies as JSON text, as SQL stores keep them."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from onthedot.stores.contract import DEFAULT, Policy

_FIELDS = Policy.__struct_fields__
_DEFAULTS = {name: getattr(DEFAULT, name) for name in _FIELDS}
_MAX_POLICIES = 10_000  # a definition has one, and its tasks share it
_texts: dict[Policy, str] = {}


def policy_text(policy: Policy) -> str:
    """JSON without the fields that have their default."""
    text = _texts.get(policy)
    if text is None:
        if len(_texts) >= _MAX_POLICIES:
            _texts.clear()
        fields = {name: value for name in _FIELDS if (value := getattr(policy, name)) != _DEFAULTS[name]}
        text = _texts[policy] = msgspec.json.encode(fields).decode()
    return text


@lru_cache(_MAX_POLICIES)
def policy_of(text: str) -> Policy:
    return msgspec.json.decode(text, type=Policy)
