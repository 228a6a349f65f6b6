"""How uuids are kept: a byte that says how long the text is, and the text; or a zero and sixteen bytes.

Most are of the usual form, lower-case with dashes: as bytes they take half. The scripts take either as it is; where one
ends is seen from its first byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_USUAL = 17  # bytes


def packed_uuid(uuid: str) -> bytes:
    if uuid[8:24:5] == "----" and len(uuid) == 36:
        digits = uuid.replace("-", "")
        try:
            raw = bytes.fromhex(digits)
        except ValueError:
            raw = b""
        if len(raw) == 16 and raw.hex() == digits:  # capitals and spaces are read as well, and would be lost
            return b"\0" + raw
    text = uuid.encode()
    return len(text).to_bytes(1, "big") + text


def packed_uuids(uuids: Iterable[str]) -> list[bytes]:
    return [packed_uuid(uuid) for uuid in uuids]


def to_uuid(packed: bytes) -> str:
    if packed[0]:
        return packed[1:].decode()
    digits = packed.hex()
    return f"{digits[2:10]}-{digits[10:14]}-{digits[14:18]}-{digits[18:22]}-{digits[22:]}"


def uuid_end(packed: bytes, start: int) -> int:
    return start + ((packed[start] + 1) if packed[start] else _USUAL)


def to_uuids(packed: bytes) -> Iterator[str]:
    """Of one behind the other."""
    start = 0
    while start < len(packed):
        end = uuid_end(packed, start)
        yield to_uuid(packed[start:end])
        start = end
