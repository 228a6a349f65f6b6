"""Tables of text that fit a width: cells are cut, and columns that matter less are left out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple
from unicodedata import combining, east_asian_width

_GAP = 2  # spaces between columns
_MIN_WRAPPED = 20  # characters per line of a column that is wrapped


class Column(NamedTuple):
    """A column and what happens to it if the table is too wide."""

    title: str
    least: int | None = None  # its cells may be cut to so many characters; None: never
    drop: int = 0  # the column with the highest number is left out first; 0: never
    right: bool = False  # numbers
    wrap: bool = False  # the last column may continue on the next line, under itself


def number(title: str, drop: int = 0) -> Column:
    """A column of numbers."""
    return Column(title, drop=drop, right=True)


@dataclass(frozen=True)
class TextTable:
    """notes: texts under a row, by its number, each on its own line."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    notes: Mapping[int, Sequence[str]] = field(default_factory=dict[int, Sequence[str]])

    def lines(self, width: int | None) -> Iterator[tuple[str, ...]]:
        """Yield the cells of each line, padded; a note is a line with one cell. None: any width."""
        shown = self._shown(width)
        widths = self._widths(shown, width)
        if any(self.columns[place].title for place in shown):
            yield self._padded([self.columns[place].title for place in shown], shown, widths)
        for at, row in enumerate(self.rows):
            yield from self._wrapped([row[place] for place in shown], shown, widths)
            for note in self.notes.get(at, ()):
                yield (cut(f"  {note}", width),)

    @cached_property
    def _natural(self) -> list[int]:
        """The width of each column without a cut."""
        titles = [column.title for column in self.columns]
        return [max(map(display_width, cells)) for cells in zip(titles, *self.rows, strict=True)]

    def _least(self, place: int) -> int:
        column = self.columns[place]
        natural = self._natural[place]
        if column.wrap:
            return min(natural, _MIN_WRAPPED)
        if column.least is None:
            return natural
        return min(natural, max(column.least, display_width(column.title)))

    def _shown(self, width: int | None) -> list[int]:
        """The places of the columns that have room."""
        shown = list(range(len(self.columns)))
        if width is None:
            return shown
        while sum(map(self._least, shown)) + _GAP * (len(shown) - 1) > width:
            candidates = [place for place in shown if self.columns[place].drop]
            if not candidates:
                break
            shown.remove(max(candidates, key=lambda place: self.columns[place].drop))
        return shown

    def _widths(self, shown: Sequence[int], width: int | None) -> list[int]:
        """The natural widths; if they do not fit, the widest columns that may be cut are made narrower."""
        widths = [self._natural[place] for place in shown]
        if width is None:
            return widths
        excess = sum(widths) + _GAP * (len(shown) - 1) - width
        least = [self._least(place) for place in shown]
        while excess > 0:
            spare = [have - need for have, need in zip(widths, least, strict=True)]
            at = max(range(len(spare)), key=lambda place: (spare[place] > 0, widths[place]))
            if spare[at] <= 0:
                break
            widths[at] -= 1
            excess -= 1
        return widths

    def _wrapped(self, cells: Sequence[str], shown: Sequence[int], widths: Sequence[int]) -> Iterator[tuple[str, ...]]:
        *others, last = cells
        if not self.columns[shown[-1]].wrap or display_width(last) <= widths[-1]:
            yield self._padded(cells, shown, widths)
            return
        for part in textwrap.wrap(last, widths[-1], break_on_hyphens=False):
            yield self._padded([*others, part], shown, widths)
            others = [""] * len(others)

    def _padded(self, cells: Sequence[str], shown: Sequence[int], widths: Sequence[int]) -> tuple[str, ...]:
        padded: list[str] = []
        for cell, place, width in zip(cells, shown, widths, strict=True):
            text = cut(cell, width)
            space = " " * (width - display_width(text))
            padded.append(space + text if self.columns[place].right else text + space)
        return tuple(padded)


def display_width(text: str) -> int:
    """The number of terminal cells: Chinese characters take two.

    >>> display_width("ab"), display_width("日本"), display_width("e\u0301")
    (2, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def cut(text: str, width: int | None) -> str:
    """The text, or its beginning with an ellipsis.

    >>> cut("send_receipt", 8), cut("日本語", 5), cut("short", 8)
    ('send_re…', '日本…', 'short')
    """
    if width is None or display_width(text) <= width:
        return text
    left = width - 1
    for place, character in enumerate(text):
        left -= _cells(character)
        if left < 0:
            return f"{text[:place]}…"
    return text
