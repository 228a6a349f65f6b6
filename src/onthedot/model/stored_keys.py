"""Texts as all stores keep them: unique keys, tags, uuids and the words of an operator.

Filters apply the same rules, so that a task is found by what it got.
"""

from __future__ import annotations

from hashlib import sha256

from onthedot.errors import ArgumentError

_MAX_BYTES = 512  # a B-tree row of Postgres has at most 2,704


def stored_key(text: str, option: str, source: str | None = None) -> str:
    """The key itself; a digest of one that is too long for the index of a database.

    option, source: named in the error

    >>> stored_key("2026-11-17", "unique"), stored_key("x" * 600, "unique")[:11]
    ('2026-11-17', 'sha256:5130')
    """
    if len(text) <= _MAX_BYTES and text.isascii() and "\0" not in text:  # nearly all keys, in a fifth of the time
        return text
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise _refused(option, source, f"a lone surrogate at {error.start}") from None
    if "\0" in text:
        raise _refused(option, source, f"a NUL at {text.index(chr(0))}")
    if len(data) > _MAX_BYTES:
        return f"sha256:{sha256(data).hexdigest()}"
    return text


def stored_text(text: str) -> str:
    """A text for people, such as a reason: what a store cannot keep is escaped.

    >>> stored_text("scan-\\udcff.pdf")
    'scan-\\\\udcff.pdf'
    """
    return str(text).encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _refused(option: str, source: str | None, problem: str) -> ArgumentError:
    """Without the text, which may be made of secret arguments."""
    named = ": ".join(filter(None, (source, option)))
    return ArgumentError(
        f"{named} has {problem}, which no store can keep; decode it with errors='replace', or use a digest of it"
    )
