"""The table of `./dev bench page` in the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.page_table import replace_between
from benchmarks.plots import DOCS

FIGURES = DOCS / "page.json"
PAGE = DOCS / "explanation" / "benchmarks.md"
BEGIN = "<!-- begin: written by ./dev bench page -->\n"
END = "<!-- end -->\n"
_COMPARED = ("tasks/s", "µs per task")  # units of figures of which the other one is of the same run, and no bound


def page_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown. `rows` come from reports. A figure is compared with a bound, or with another one of the same run."""
    lines = ["| what | measured | target |", "|---|---|---|"]
    for row in rows:
        what = row["name"].partition(" / ")[2]
        bound = "≥" if row["least"] else "≤"
        missed = "" if row["met"] else " (missed)"
        if row["unit"] in _COMPARED:
            value = f"{row['ours']:,.0f} and {row['other']:,.0f} {row['unit']}: {row['value']:.2f} ×"
            target = "–" if row["target"] is None else f"{bound} {row['target']:g} ×"
        else:
            value = f"{row['ours']:,.0f} {row['unit']}" if row["ours"] >= 1 else f"{row['ours']:.3f} {row['unit']}"
            target = "–" if row["target"] is None else f"{bound} {row['target'] * row['other']:g} {row['unit']}"
        lines.append(f"| {what} | {value}{missed} | {target} |")
    return "\n".join(lines) + "\n"


def keep_figures(rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows of measures that this run has left out (`--only`) stay; those of the others are replaced."""
    kept: list[Mapping[str, Any]] = json.loads(FIGURES.read_text())["rows"] if FIGURES.exists() else []
    measured = {_measure(row) for row in rows}
    merged = [*(row for row in kept if _measure(row) not in measured), *rows]
    merged.sort(key=_measure)
    FIGURES.write_text(json.dumps({"rows": merged}, indent=1) + "\n")
    replace_between(PAGE, BEGIN, END, page_table(merged))


def _measure(row: Mapping[str, Any]) -> str:
    name: str = row["name"]
    return name.partition(" / ")[0]
