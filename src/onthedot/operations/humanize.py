"""Numbers and times as text for people."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from onthedot.clock.epoch import from_ms

SHORT_ID = 10  # characters
_UNITS = (("day", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def plural(number: int, noun: str, plural_noun: str = "") -> str:
    """
    >>> plural(1, "task"), plural(1200, "task"), plural(2, "is", "are")
    ('1 task', '1,200 tasks', '2 are')
    """
    return f"{number:,} {noun if number == 1 else plural_noun or f'{noun}s'}"


def suffix(separator: str, text: str) -> str:
    """The separator and the text, unless the text is empty.

    >>> "paused" + suffix(": ", "deploy"), "paused" + suffix(": ", "")
    ('paused: deploy', 'paused')
    """
    if not text:
        return ""
    return separator + text


def short_id(uuid: str) -> str:
    """The end of a uuid, which commands accept for the whole: the uuids of a process end with a counter.

    >>> short_id("01a1e212-de42-73a9-a624-125b4862a31e")
    '5b4862a31e'
    """
    return uuid[-SHORT_ID:]


def ago(seconds: float) -> str:
    """
    >>> ago(-90), ago(3 * 86_400), ago(0.2)
    ('1 min ago', 'in 3 days', 'now')
    """
    size = abs(seconds)
    for unit, length in _UNITS:
        if size >= length:
            count = int(size // length)
            text = plural(count, unit) if unit == "day" else f"{count} {unit}"
            return f"in {text}" if seconds > 0 else f"{text} ago"
    return "now"


def duration_text(seconds: float | None) -> str:
    """How long something took, in at most eight characters; "-" for None.

    >>> duration_text(0.0004), duration_text(0.0523), duration_text(2.345), duration_text(75), duration_text(9000)
    ('0.4 ms', '52 ms', '2.3 s', '1.2 min', '2.5 h')
    """
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        ms = seconds * 1000
        return f"{ms:.0f} ms" if ms >= 9.95 or ms == round(ms) else f"{ms:.1f} ms"
    for unit, length, most in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 48)):
        if seconds / length < most:
            return f"{seconds / length:.1f} {unit}"
    return plural(int(seconds // 86_400), "day")


def from_now(moment: datetime) -> str:
    """`ago` for a moment."""
    return ago((moment - datetime.now(UTC)).total_seconds())


def moment_text(ms: float, zone: tzinfo | None) -> str:
    """A time in ms, to the second. zone: None is local time.

    >>> moment_text(0, UTC)
    '1970-01-01 00:00:00 UTC'
    """
    text = from_ms(ms).astimezone(zone).isoformat(" ", "seconds")
    return text.replace("+00:00", " UTC") if zone is UTC else text
