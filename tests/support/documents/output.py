"""Compares the output that a page shows with the output of a command."""

from __future__ import annotations

import re

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?|\d\d:\d\d:\d\d([+-]\d\d:?\d\d)?")
_SHORT_ID = re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{6,12}\b")
_DURATION = re.compile(r"\d[\d,]*(\.\d+)? ?(ms|s)\b")
_NUMBER = re.compile(r"\d[\d,]*(\.\d+)?")
GAP = "…"


def normal(text: str) -> str:
    """A line without what differs from run to run: ids, times, numbers and the width of columns.

    >>> normal("01a1e212-de42-73a9-a624-125b4862a31e  done  in 12.5 ms  2026-11-16 01:57:30+01:00")
    'ID done in 0 s TIME'
    """
    text = _UUID.sub("ID", text)
    text = _MOMENT.sub("TIME", text)
    text = _SHORT_ID.sub("ID", text)
    text = _DURATION.sub("0 s", text)
    text = _NUMBER.sub("0", text)
    return " ".join(text.split())


def matches(expected: str, output: str) -> bool:
    """Whether the output has the lines that a page shows; ``…`` stands for any text, alone for any lines or none.

    >>> matches("moved 3 tasks\\n…\\nbye …", "moved 17 tasks\\na\\nb\\nbye ann")
    True
    >>> matches("…\\nmoved 3 tasks\\n…", "moved 17 tasks")
    True
    """
    pattern = "".join([_line_pattern(normal(line)) for line in expected.strip().splitlines()])
    shown = "".join([f"{normal(line)}\n" for line in output.strip().splitlines()])
    return re.fullmatch(pattern, shown, re.DOTALL) is not None


def _line_pattern(line: str) -> str:
    if line == GAP:
        return r"(?:[^\n]*\n)*"
    return re.escape(line).replace(re.escape(GAP), ".*") + r"\n"
