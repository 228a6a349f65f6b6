"""How policies are packed: stored once per source, and referred to by a digest of the text."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import msgspec

from onthedot.stores.contract import DEFAULT, Policy

_KEYS = {
    "priority": "p", "boost": "b", "cost": "c", "on_conflict": "k", "unique_for": "u", "expires": "x",
    "max_crashes": "m", "tags": "t", "reply_to": "r",
}  # fmt: skip
assert tuple(_KEYS) == Policy.__struct_fields__, "a field of Policy without a key would not be stored"
_NAMES = {key: name for name, key in _KEYS.items()}
_MAX_POLICIES = 10_000  # remembered; a definition has one, and its tasks share it
DIGEST_BYTES = 12  # a multiple of 3: base64 without padding. The scripts refuse a second text of a digest
UNKNOWN_SOURCE = "?"  # of tasks whose policy cannot be read; no source has this name


class PackedPolicy(NamedTuple):
    digest: str
    text: str


class UnknownPolicy(LookupError):
    """Another process has stored this policy: its text must be read first."""

    def __init__(self, digest: str) -> None:
        super().__init__(digest)
        self.digest = digest


_digests: dict[tuple[str, Policy], PackedPolicy] = {}
known_policies: dict[str, tuple[str, Policy]] = {}  # by digest, with the source of its tasks
unreadable_policies: dict[str, str] = {}  # the source of each


def pack_policy(source: str, policy: Policy) -> PackedPolicy:
    """The digest, by which tasks of the source refer to it, and JSON with the source, without default values."""
    known = _digests.get((source, policy))
    if known is None:
        if len(_digests) >= _MAX_POLICIES:
            _digests.clear()
        changed = {_KEYS[name]: value for name in _KEYS if (value := getattr(policy, name)) != getattr(DEFAULT, name)}
        text = msgspec.json.encode({"s": source, **changed})
        digest = b64encode(sha256(text).digest()[:DIGEST_BYTES]).decode()
        known = PackedPolicy(digest, text.decode())
        _digests[source, policy] = known
    return known


def remember_policy(digest: str, text: bytes | None) -> None:
    """None: it is missing. Fields of a newer version are ignored."""
    if len(known_policies) + len(unreadable_policies) >= _MAX_POLICIES:
        known_policies.clear()
        unreadable_policies.clear()
    source = UNKNOWN_SOURCE
    try:
        fields = msgspec.json.decode(text or b"")
        source = msgspec.convert(fields.pop("s"), str)
        policy = msgspec.convert({_NAMES[key]: value for key, value in fields.items() if key in _NAMES}, Policy)
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError):
        unreadable_policies[digest] = source
    else:
        known_policies[digest] = source, policy
        unreadable_policies.pop(digest, None)


def forget_missing(digests: Iterable[str]) -> None:
    """The store may have them again later."""
    for digest in digests:
        unreadable_policies.pop(digest, None)
