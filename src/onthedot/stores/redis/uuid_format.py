"""How uuids are kept: a byte that says how long the text is, and the text; or a zero and sixteen bytes.

Most are of the usual form, lower-case with dashes: as bytes they take half. The scripts take either as it is; where one
ends is seen from its first byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_USUAL = 17  # bytes


def pack_uuid(uuid: str) -> bytes:
    return pack_uuids((uuid,))


def pack_uuids(uuids: Sequence[str]) -> bytes:
    """One behind the other. If all are of the usual form, in one stroke: every task passes here, coming and going."""
    number = len(uuids)
    text = "00" + "00".join(uuids)
    dashed = text[10::38] == text[15::38] == text[20::38] == text[25::38] == "-" * number
    if dashed and set(map(len, uuids)) == {36}:
        digits = text.replace("-", "")
        try:
            raw = bytes.fromhex(digits)
        except ValueError:
            raw = b""
        if len(raw) == _USUAL * number and raw.hex() == digits:  # capitals and spaces are understood, too, and would go
            return raw
    return b"".join(map(pack_uuid if number > 1 else _packed_text, uuids))


def _packed_text(uuid: str) -> bytes:
    text = uuid.encode()[:255]  # none has more than 200: what is longer is looked for in vain
    return len(text).to_bytes(1, "big") + text


def to_uuid(packed: bytes) -> str:
    return uuid_at(packed, 0)[0]


def to_uuids(packed: bytes) -> Iterator[str]:
    """Of one behind the other."""
    start = 0
    while start < len(packed):
        uuid, start = uuid_at(packed, start)
        yield uuid


def uuid_at(packed: bytes, start: int) -> tuple[str, int]:
    """And where it ends."""
    length = packed[start]
    if length:
        end = start + 1 + length
        return packed[start + 1 : end].decode(), end
    end = start + _USUAL
    fours = packed[start + 1 : end].hex("-", 2)  # with three dashes too many
    return f"{fours[:4]}{fours[5:29]}{fours[30:34]}{fours[35:]}", end
