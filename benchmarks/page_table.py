"""The place of a generated table in a page of the documentation."""

from __future__ import annotations

from pathlib import Path


def replace_between(page: Path, begin: str, end: str, table: str) -> None:
    """Writes the table between the two marks of the page."""
    before, found, rest = page.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{page} has no marks {begin.strip()} and {end.strip()}")
    page.write_text(f"{before}{begin}{table}{end}{after}")
