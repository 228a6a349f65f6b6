"""Runs measures in rounds, computes medians, and compares them with targets."""

from __future__ import annotations

import gc
import json
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One round of one measure: our value, the other one, and the target of their ratio. None: it has no goal."""

    ours: float
    other: float
    unit: str
    against: str
    target: float | None
    least: bool  # the ratio must be at least the target; else at most
    difference: bool = False  # ours − other instead of ours / other

    @property
    def value(self) -> float:
        return self.ours - self.other if self.difference else self.ours / self.other

    def met(self, value: float) -> bool:
        if self.target is None:
            return True
        return value >= self.target if self.least else value <= self.target


Measure = Callable[[float], "list[Figure]"]


def run(measures: Sequence[Measure], rounds: int, scale: float, file: str | None) -> int:
    """Rounds are the outer loop, so that a slow minute of the machine affects all measures."""
    figures: dict[str, list[Figure]] = {}
    for number in range(rounds):
        for measure in measures:
            print(f"\rround {number + 1}/{rounds}: {measure.__name__:<24}", end="", file=sys.stderr, flush=True)
            gc.collect()
            for figure in measure(scale):
                figures.setdefault(f"{measure.__name__} / {figure.against}", []).append(figure)
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    rows = [_row(name, each) for name, each in figures.items()]
    _print(rows)
    if file:
        about = {"python": platform.python_version(), "rounds": rounds, "scale": scale, "rows": rows}
        Path(file).write_text(json.dumps(about, indent=1) + "\n")
    return 0 if scale < 1 or all(row["met"] for row in rows) else 1


def _row(name: str, figures: list[Figure]) -> dict[str, object]:
    first = figures[0]
    value = statistics.median(figure.value for figure in figures)
    return {
        "name": name,
        "ours": statistics.median(figure.ours for figure in figures),
        "other": statistics.median(figure.other for figure in figures),
        "value": value,
        "worst": min(f.value for f in figures) if first.least else max(f.value for f in figures),
        "met": first.met(value),
    } | {key: part for key, part in asdict(first).items() if key in ("unit", "target", "least", "difference")}


def _print(rows: list[dict[str, object]]) -> None:
    print(f"{'measure':<46}{'ours':>12}{'other':>12}  {'unit':<10}{'median':>9}{'worst':>9}  target")
    for row in rows:
        bound = mark = ""
        if row["target"] is not None:
            bound = f"{'≥' if row['least'] else '≤'} {row['target']:g}{' more' if row['difference'] else ' ×'}"
            mark = "met" if row["met"] else "MISSED"
        print(
            f"{row['name']:<46}{row['ours']:>12,.1f}{row['other']:>12,.1f}  {row['unit']:<10}"
            f"{row['value']:>9.2f}{row['worst']:>9.2f}  {bound:<10} {mark}"
        )
