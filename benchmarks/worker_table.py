"""The table of `./dev bench worker` in the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.page_table import replace_between
from benchmarks.plots import DOCS

WORKER = DOCS / "worker.json"
PAGE = DOCS / "explanation" / "benchmarks.md"
BEGIN = "<!-- begin: written by ./dev bench worker -->\n"
END = "<!-- end -->\n"

_STORES = {"worker_redis": "Redis", "worker_sqlite": "SQLite", "worker_postgres": "Postgres"}
_SHOWN = {
    "app.running()": "`app.running()`, no log",
    "Huey": "`huey_consumer`",
    "taskiq": "`taskiq worker --workers 1`",
    "PgQueuer": "`pgq run --batch-size 100`",
    "with uvloop beside without": "with uvloop; without",
}


def worker_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown. `rows` come from a report."""
    lines = [
        "| store | `onthedot worker`, tasks/s | compared with | tasks/s | target | measured |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        measure, _, against = row["name"].partition(" / ")
        missed = "" if row["met"] else " (missed)"
        lines.append(
            f"| {_STORES[measure]} | {row['ours']:,.0f} | {_SHOWN[against]} | {row['other']:,.0f} "
            f"| ≥ {row['target']:g} × | {row['value']:.2f} ×{missed}, worst round {row['worst']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def write_worker_table(rows: Sequence[Mapping[str, Any]]) -> None:
    replace_between(PAGE, BEGIN, END, worker_table(rows))
