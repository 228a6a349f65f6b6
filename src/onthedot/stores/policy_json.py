"""A policy as text: what SQL stores keep of it beside what they look at."""

from __future__ import annotations

import msgspec

from onthedot.stores.contract import DEFAULT, Policy

_FIELDS = Policy.__struct_fields__
_DEFAULTS = {name: getattr(DEFAULT, name) for name in _FIELDS}
_texts: dict[Policy, str] = {}
_policies: dict[str, Policy] = {}
_MOST = 10_000  # policies that are remembered: a declaration makes one, and its tasks share it


def policy_text(policy: Policy) -> str:
    """As JSON, without what is as always."""
    text = _texts.get(policy)
    if text is None:
        if len(_texts) >= _MOST:
            _texts.clear()
        said = {name: value for name in _FIELDS if (value := getattr(policy, name)) != _DEFAULTS[name]}
        text = _texts[policy] = msgspec.json.encode(said).decode()
    return text


def policy_of(text: str) -> Policy:
    policy = _policies.get(text)
    if policy is None:
        if len(_policies) >= _MOST:
            _policies.clear()
        policy = _policies[text] = msgspec.json.decode(text, type=Policy)
    return policy
