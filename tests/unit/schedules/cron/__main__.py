"""Compares cron with the oracle in full: every minute within 48 h of every change of the clocks, and 100,000 samples.

    python -m tests.unit.schedules.cron [--jobs 2] [--samples 100000] [--no-changes] [--day 2026-11-16]

Every change of every zone, five years back and five ahead, is asked about with one expression; those that differ from
all the others with three more. By estimate that is about 40 minutes of one core.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date
from multiprocessing import get_context

from tests.unit.schedules.cron import drawing, sweep

_PORTION = 250  # samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--no-changes", action="store_true", help="only the samples")
    parser.add_argument("--day", default=date.today().isoformat(), help="draws the samples")  # noqa: DTZ011
    options = parser.parse_args()
    year = int(options.day[:4])
    began = time.monotonic()
    work = [] if options.no_changes else list(changes(year))
    with get_context("spawn").Pool(options.jobs) as pool:
        minutes = 0
        for number, checked in enumerate(pool.imap_unordered(sweep.around, work, chunksize=8), 1):
            minutes += checked
            if number % 500 == 0:
                print(f"… {number} of {len(work)} changes", file=sys.stderr, flush=True)
        print(
            f"changes of the clocks: {len(work)} in {len({zone for zone, _, _ in work})} zones; "
            f"minutes asked about: {minutes:,}; all as the oracle says; {time.monotonic() - began:.0f} s",
            flush=True,
        )
        began = time.monotonic()
        portions = [
            (f"{options.day} {n}", year, min(_PORTION, options.samples - n))
            for n in range(0, options.samples, _PORTION)
        ]
        kinds = sum(pool.imap_unordered(sweep.samples, portions), Counter[str]())
    shown = ", ".join(f"{kinds[kind]:,} {kind}" for kind in ("fired", "later", "never"))
    print(f"samples: {kinds.total():,} ({shown}); all as the oracle says; {time.monotonic() - began:.0f} s")


def changes(year: int) -> Iterator[sweep.Change]:
    """Changes with their expressions, in rotation, so that all expressions are used equally."""
    telling = drawing.TELLING
    once = set(sweep.distinct(year).values())
    number = 0
    for zone in drawing.zones():
        for change in drawing.changes(zone, year):
            count = 4 if (zone, change) in once else 1
            yield zone, change, [telling[(number + n) % len(telling)] for n in range(count)]
            number += count


if __name__ == "__main__":
    main()
