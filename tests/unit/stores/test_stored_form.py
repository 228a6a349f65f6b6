"""A changed schema gets a new version, because an existing store keeps its tables and functions."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from onthedot.stores.postgres import schema as postgres
from onthedot.stores.sqlite import schema as sqlite

DIGESTS = {
    "sqlite 3": "e9b6a9f15c3f",
    "sqlite 4": "87ad23cb9a53",
    "postgres 3": "b4a5b5e8ef3d",
    "postgres 4": "aa5cf06dbb24",
}


def digest(text: str) -> str:
    """Comments and line breaks do not count."""
    without_comments = re.sub(r"--.*", "", text)
    return sha256(" ".join(without_comments.split()).encode()).hexdigest()[:12]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_changed_schema_has_a_new_version(store: str) -> None:
    """After a release: raise VERSION, add a migration, and add the digest of the new version here."""
    schema = {"sqlite": sqlite, "postgres": postgres}[store]
    assert DIGESTS[f"{store} {schema.VERSION}"] == digest(schema.schema_text())
