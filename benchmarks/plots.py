"""Plots for the documentation, drawn from measured figures as plain SVG for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
AGING = DOCS / "aging.svg"
DRAIN = DOCS / "drain.svg"
DRAINED = DOCS / "drain.json"
_STYLE = 'role="img" font-family="sans-serif" font-size="12" fill="#808080" stroke="none"'
_WIDTH = 640
_HEIGHT = 300
_LEFT = 56
_TOP = 24
_BOTTOM = 52


def aging_svg(waits: Mapping[int, int]) -> str:
    """The wait in ms by priority, as bars."""
    most = 10  # minutes
    across = _WIDTH - _LEFT - 16
    down = _HEIGHT - _TOP - _BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {_STYLE}>',
        "<title>How long a task waits behind an endless stream of priority 10, by its own priority</title>",
    ]
    for minutes in range(0, most + 1, 2):
        y = _TOP + down * (1 - minutes / most)
        lines.append(f'<path d="M{_LEFT} {y:.1f}h{across}" stroke="#808080" stroke-opacity="0.25"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{minutes} min</text>')
    slot = across / len(waits)
    for number, (priority, ms) in enumerate(sorted(waits.items())):
        height = down * ms / 60_000 / most
        x = _LEFT + slot * number + slot * 0.2
        y = _TOP + down - height
        lines.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{slot * 0.6:.1f}" height="{height:.1f}" fill="#3f7fbf"/>')
        label = f"{ms / 60_000:g}"
        lines.append(f'<text x="{x + slot * 0.3:.1f}" y="{y - 5:.1f}" text-anchor="middle">{label}</text>')
        lines.append(f'<text x="{x + slot * 0.3:.1f}" y="{_TOP + down + 18}" text-anchor="middle">{priority}</text>')
    lines.append(f'<text x="{_LEFT + across / 2}" y="{_HEIGHT - 12}" text-anchor="middle">priority of the task</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


_STORES = {"drain": "in memory", "sqlite_drain": "SQLite", "redis_drain": "Redis", "postgres_drain": "Postgres"}
_BAR = 16
_GAP = 14
_LABEL = 190


def drain_svg(rows: Sequence[Mapping[str, Any]]) -> str:
    """Tasks per second by store, for onthedot, each peer and a bare loop, as bars. `rows` come from a report."""
    groups: dict[str, list[tuple[str, float, str]]] = {}
    for row in rows:
        measure, _, against = row["name"].partition(" / ")
        bars = groups.setdefault(_STORES[measure], [("onthedot", row["ours"], 'fill="#3f7fbf"')])
        is_bare = "bare" in against
        look = 'fill="none" stroke="#808080"' if is_bare else 'fill="#808080"'
        bars.append(("a bare loop" if is_bare else against, row["other"], look))
    most = max(rate for bars in groups.values() for _, rate, _ in bars)
    lines = ["<title>No-op tasks per second of one worker process, compared with others in the same run</title>"]
    y = 0
    for store, bars in groups.items():
        lines.append(f'<text x="0" y="{y + 13}" font-weight="bold">{store}</text>')
        for name, rate, look in sorted(bars, key=lambda bar: "stroke" in bar[2]):
            width = max(1, (_WIDTH - _LABEL - 64) * rate / most)
            lines.append(f'<text x="{_LABEL - 8}" y="{y + 13}" text-anchor="end">{name}</text>')
            lines.append(f'<rect x="{_LABEL}" y="{y + 2}" width="{width:.1f}" height="{_BAR - 3}" {look}/>')
            lines.append(f'<text x="{_LABEL + width + 6:.1f}" y="{y + 13}">{rate:,.0f}</text>')
            y += _BAR
        y += _GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y - _GAP}" {_STYLE}>'
    return "\n".join([head, *lines, "</svg>"]) + "\n"
