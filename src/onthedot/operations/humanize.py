"""Times, in words."""

from __future__ import annotations


def ago(seconds: float) -> str:
    """
    >>> ago(-90), ago(3 * 86_400), ago(0.2)
    ('1 min ago', 'in 3 days', 'now')
    """
    size = abs(seconds)
    for unit, length in (("day", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if size >= length:
            count = int(size // length)
            text = f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}"
            return f"in {text}" if seconds > 0 else f"{text} ago"
    return "now"
