"""Uuids of any form are unpacked as they were packed."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, strategies as st

from onthedot.model.uuid7 import new_uuid
from onthedot.stores.redis.uuid_format import pack_each_uuid, pack_uuid, pack_uuids, to_uuid, to_uuids

USUAL = "0198a1b2-c3d4-7e5f-8123-456789abcdef"
LIKE_IT = [
    USUAL.upper(), USUAL[:-1] + "F", USUAL.replace("-", ""), "{" + USUAL + "}", USUAL[:-1], USUAL + "0",
    "0198a1b2-c3d4-7e5f-8123-456789abcde-", "0198a1b2-c3d4-7e5f-8123-456789abcd  ",
    "0198a1b2-c3d4-7e5f-8123-456789abcdeg",
    "0198a1b-2c3d4-7e5f-8123-456789abcdef", "-" * 36, "\0" + USUAL[1:], "ä" * 36, "x" * 200, "\0" * 17,
]  # fmt: skip


@pytest.mark.parametrize("text", [USUAL, new_uuid(), str(uuid.UUID(int=0)), "0" * 8 + USUAL[8:]])
def test_uuid_in_the_usual_form_takes_17_bytes(text: str) -> None:
    assert len(pack_uuid(text)) == 17
    assert pack_uuid(text)[1:] == uuid.UUID(text).bytes
    assert to_uuid(pack_uuid(text)) == text


@pytest.mark.parametrize("text", LIKE_IT)
def test_text_that_only_looks_like_a_uuid_is_kept(text: str) -> None:
    assert to_uuid(pack_uuid(text)) == text
    assert pack_uuid(text)[0] == len(text.encode())
    together = [USUAL, text, USUAL]
    assert list(to_uuids(pack_uuids(together))) == together


def test_texts_whose_total_length_is_usual_are_kept() -> None:
    together = [USUAL[:-1], USUAL + "0"]
    assert list(to_uuids(pack_uuids(together))) == together
    assert pack_uuids([]) == b""
    assert pack_each_uuid([]) == []


_texts = st.one_of(
    st.uuids().map(str), st.sampled_from([USUAL, *LIKE_IT]), st.text("0123456789abcdefA-", min_size=1, max_size=40)
)


@given(st.lists(_texts))
def test_concatenated_uuids_are_separated(texts: list[str]) -> None:
    packed = pack_uuids(texts)
    assert packed == b"".join(map(pack_uuid, texts))
    assert list(to_uuids(packed)) == texts
    assert pack_each_uuid(texts) == list(map(pack_uuid, texts))
    assert len({pack_uuid(text) for text in texts}) == len(set(texts))


def test_too_long_uuid_matches_no_other() -> None:
    assert pack_uuid("x" * 300) != pack_uuid("x" * 200)
