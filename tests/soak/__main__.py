"""``./dev soak [--hours H] [--store NAME] [--docs]``: steady load on SQLite, Redis and Postgres at the same time."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.soak.plot import soak_svg, thinned
from tests.soak.run import sample_for, started_together

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "soak.json"
PLOT = DOCS / "soak.svg"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--store", action="append", choices=["sqlite", "redis", "postgres"], help="all by default")
    parser.add_argument("--docs", action="store_true", help="write docs/soak.json and docs/soak.svg")
    options = parser.parse_args()
    seconds = options.hours * 3600
    with started_together(options.store or ["sqlite", "redis", "postgres"]) as runs:
        sample_for(runs, seconds, max(1.0, seconds / 600))
        for run in runs:
            run.end_load()
        for run in runs:
            run.await_retention()
            print(run, flush=True)
        leaks = {run.store.name: found for run in runs if (found := run.leaks())}
    figures = {
        run.store.name: {name: list(thinned(samples)) for name, samples in sorted(run.series.items())} for run in runs
    }
    print(f"grew in the second half by more than noise, or is left after the load: {leaks or 'nothing'}")
    if options.docs:
        FIGURES.write_text(json.dumps({"hours": options.hours, "runs": figures}) + "\n")
        PLOT.write_text(soak_svg(figures))
    return int(bool(leaks))


if __name__ == "__main__":
    sys.exit(main())
