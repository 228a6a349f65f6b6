"""The table of `./dev bench events` in the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.page_table import replace_between
from benchmarks.plots import DOCS

EVENTS = DOCS / "events.json"
PAGE = DOCS / "explanation" / "benchmarks.md"
BEGIN = "<!-- begin: written by ./dev bench events -->\n"
END = "<!-- end -->\n"


def events_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown. `rows` come from a report."""
    lines = ["| measure | what | ours | compared with | target | measured |", "|---|---|---|---|---|---|"]
    for row in rows:
        measure, _, against = row["name"].partition(" / ")
        unit = row["unit"]
        if row["difference"]:
            other = "–"
            value = f"{row['value']:.1f} {unit}"
        else:
            other = f"{row['other']:,.0f} {unit}"
            value = f"{row['value']:.2f} ×, worst round {row['worst']:.2f}"
        target = "–" if row["target"] is None else _target(row)
        missed = "" if row["met"] else " (missed)"
        lines.append(f"| `{measure}` | {against} | {row['ours']:,.0f} {unit} | {other} | {target} | {value}{missed} |")
    return "\n".join(lines) + "\n"


def _target(row: Mapping[str, Any]) -> str:
    bound = "≥" if row["least"] else "≤"
    return f"{bound} {row['target']:g} {row['unit'] if row['difference'] else '×'}"


def write_events_table(rows: Sequence[Mapping[str, Any]]) -> None:
    replace_between(PAGE, BEGIN, END, events_table(rows))
