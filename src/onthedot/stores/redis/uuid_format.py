"""How uuids are stored: one byte for the length of the text, and the text; or a zero byte and sixteen bytes.

Most are in the usual form, lower-case with dashes; as bytes they take half the space. The first byte shows the end, so
scripts need not know the form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_USUAL_LENGTH = 17
_LEAST_DIGITS = 8  # of the beginning of a uuid whose time is used: a span of 65 s


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


def uuid_beginning(part: str) -> tuple[bytes, int] | None:
    r"""The first bytes of packed uuids that begin with this text, and the time in ms of the first of them.

    None: it has no time; it is too short, or the text is not the beginning of a uuid of version 7 or 8.

    >>> uuid_beginning("01a1e212-de")
    (b'\x00\x01\xa1\xe2\x12\xde', 1794794249728)
    """
    digits = part.replace("-", "")
    usual = "-".join(filter(None, (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32])))
    if len(digits) < _LEAST_DIGITS or part.removesuffix("-") != usual or digits[12:13] not in ("", "7", "8"):
        return None
    try:
        first = bytes.fromhex(digits[: len(digits) // 2 * 2])  # of an odd number, the half byte is left out
        time = int(digits[:12].ljust(12, "0"), 16)
    except ValueError:
        return None
    return b"\0" + first, time


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
