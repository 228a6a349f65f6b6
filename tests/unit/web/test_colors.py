"""Colours of the page: text is readable in both themes, and states differ, also without red and green."""

from __future__ import annotations

import re
from itertools import combinations
from typing import NamedTuple

import pytest

from tests.support.source_files import ROOT

STYLES = ROOT / "page" / "src" / "styles.css"
THEMES = ("light", "dark")
STATES = ("running", "waiting", "succeeded", "failed", "paused")
GROUNDS = ("ground", "surface", "raised")
READABLE = 4.5  # WCAG AA
TEXTS = ("ink", "ink-2", "accent", *(f"c-{state}" for state in (*STATES, "scheduled", "ready", "cancelled")))
DIFFERENT = 10.0  # CIE76; 2.3 is just noticeable


class Color(NamedTuple):
    """Linear light, 0 to 1."""

    red: float
    green: float
    blue: float

    @property
    def luminance(self) -> float:
        return 0.2126 * self.red + 0.7152 * self.green + 0.0722 * self.blue


def color(text: str) -> Color:
    """
    >>> color("#ffffff").luminance
    1.0
    """
    digits = text.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    values = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    return Color(*(each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in values))


def colors(theme: str) -> dict[str, Color]:
    found = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\);", STYLES.read_text())
    assert len(found) > 15
    return {name: color(light if theme == "light" else dark) for name, light, dark in found}


def contrast(first: Color, second: Color) -> float:
    low, high = sorted((first.luminance, second.luminance))
    return (high + 0.05) / (low + 0.05)


def without_green(seen: Color) -> Color:
    """As with deuteranopia: the matrix of Machado, Oliveira and Fernandes (2009), severity 1."""
    rows = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
    red, green, blue = (sum(weight * part for weight, part in zip(row, seen, strict=True)) for row in rows)
    return Color(*(min(1.0, max(0.0, each)) for each in (red, green, blue)))


def lab(seen: Color) -> tuple[float, float, float]:
    red, green, blue = seen
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x, seen.luminance, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def difference(first: Color, second: Color) -> float:
    pairs = zip(lab(first), lab(second), strict=True)
    return float(sum((one - other) ** 2 for one, other in pairs) ** 0.5)


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_readable_on_every_ground(theme: str) -> None:
    found = colors(theme)
    contrasts = {(text, ground): round(contrast(found[text], found[ground]), 2) for text in TEXTS for ground in GROUNDS}
    assert {pair: value for pair, value in contrasts.items() if value < READABLE} == {}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", ["full", "without green"])
def test_states_have_different_colors(theme: str, sight: str) -> None:
    """Each has an icon and a word besides."""
    found = colors(theme)
    seen = {state: found[f"c-{state}"] for state in STATES}
    if sight == "without green":
        seen = {state: without_green(each) for state, each in seen.items()}
    differences = {pair: round(difference(seen[pair[0]], seen[pair[1]]), 1) for pair in combinations(STATES, 2)}
    assert {pair: value for pair, value in differences.items() if value < DIFFERENT} == {}
