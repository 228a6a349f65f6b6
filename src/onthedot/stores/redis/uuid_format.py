"""How uuids are stored: one byte for the length of the text, and the text; or a zero byte and sixteen bytes.

Most are in the usual form, lower-case with dashes; as bytes they take half the space. The first byte shows the end, so
scripts need not know the form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_USUAL_LENGTH = 17
_GLOB = re.compile(rb"[*?\[\]\\^-]")


def pack_uuid(uuid: str) -> bytes:
    return pack_uuids((uuid,))


def pack_each_uuid(uuids: Sequence[str]) -> list[bytes]:
    packed = pack_uuids(uuids)
    if len(packed) == _USUAL_LENGTH * len(uuids) and not any(packed[::_USUAL_LENGTH]):  # all are in the usual form
        return [packed[start : start + _USUAL_LENGTH] for start in range(0, len(packed), _USUAL_LENGTH)]
    return [pack_uuid(uuid) for uuid in uuids]


def pack_uuids(uuids: Sequence[str]) -> bytes:
    """Concatenated. Uuids in the usual form are converted at once: every task passes here twice."""
    number = len(uuids)
    text = "00" + "00".join(uuids)
    dashed = text[10::38] == text[15::38] == text[20::38] == text[25::38] == "-" * number
    if dashed and set(map(len, uuids)) == {36}:
        digits = text.replace("-", "")
        try:
            raw = bytes.fromhex(digits)
        except ValueError:
            raw = b""
        if len(raw) == _USUAL_LENGTH * number and raw.hex() == digits:  # fromhex also accepts capitals and spaces
            return raw
    return b"".join(map(pack_uuid if number > 1 else _packed_text, uuids))


def _packed_text(uuid: str) -> bytes:
    text = uuid.encode()[:255]  # valid ones have at most 200: a longer one is not found
    return len(text).to_bytes(1, "big") + text


def uuid_patterns(part: str) -> list[bytes]:
    r"""Patterns for MATCH: one of them matches each packed uuid that begins or ends with this text, and a few others.

    >>> uuid_patterns("2a1e")
    [b'?2a1e*', b'*2a1e', b'\x00\\*\x1e*', b'*\\*\x1e']
    """
    text = _escaped(part.encode())
    patterns = [b"?" + text + b"*", b"*" + text]
    digits = part.replace("-", "")
    try:
        begin = bytes.fromhex(digits[: len(digits) // 2 * 2])  # of an odd number, the half byte is left out
        end = bytes.fromhex(digits[len(digits) % 2 :])
    except ValueError:
        return patterns
    return [*patterns, b"\0" + _escaped(begin) + b"*", b"*" + _escaped(end)]


def _escaped(text: bytes) -> bytes:
    return _GLOB.sub(rb"\\\g<0>", text)


def to_uuid(packed: bytes) -> str:
    return uuid_at(packed, 0)[0]


def to_uuids(packed: bytes) -> Iterator[str]:
    """Of concatenated ones."""
    start = 0
    while start < len(packed):
        uuid, start = uuid_at(packed, start)
        yield uuid


def count_uuids(packed: bytes) -> int:
    """Of concatenated ones."""
    if len(packed) % _USUAL_LENGTH == 0 and not any(packed[::_USUAL_LENGTH]):  # all are in the usual form
        return len(packed) // _USUAL_LENGTH
    return sum(1 for _ in to_uuids(packed))


def uuid_at(packed: bytes, start: int) -> tuple[str, int]:
    """The uuid, and where it ends."""
    length = packed[start]
    end = start + (1 + length if length else _USUAL_LENGTH)
    if end > len(packed):
        raise ValueError("a uuid is cut off")
    if length:
        return packed[start + 1 : end].decode(), end
    fours = packed[start + 1 : end].hex("-", 2)  # with three dashes too many
    return f"{fours[:4]}{fours[5:29]}{fours[30:34]}{fours[35:]}", end
