"""``./dev bench [core|memory|sqlite|redis|postgres|processes|limits|drain|loss] [--quick] [--json FILE]``"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks import core, limits, loss, postgres, processes, redis, sqlite
from benchmarks.picture import DRAIN, DRAINED, drain_svg
from benchmarks.report import run

SUITES = {
    "core": core.MEASURES + sqlite.MEASURES,
    "memory": core.MEASURES,
    "sqlite": sqlite.MEASURES,
    "redis": redis.MEASURES,
    "postgres": postgres.MEASURES,
    "processes": processes.MEASURES,
    "limits": limits.MEASURES,
    "drain": [core.drain, sqlite.sqlite_drain, redis.redis_drain, postgres.postgres_drain],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("suite", nargs="?", default="core", choices=[*SUITES, "loss"])
    parser.add_argument("--only", help="measures whose name contains this")
    parser.add_argument("--rounds", type=int, default=5, help="medians of so many rounds, interleaved (5)")
    parser.add_argument("--quick", action="store_true", help="one small round: does it run, not how fast it is")
    parser.add_argument("--json", help="write the figures to this file")
    said = parser.parse_args()
    if said.suite == "loss":  # no ratio: what is gone
        return loss.run(rounds=1 if said.quick else said.rounds, scale=0.3 if said.quick else 1, file=said.json)
    measures = [measure for measure in SUITES[said.suite] if not said.only or said.only in measure.__name__]
    rounds, scale = (1, 0.05) if said.quick else (said.rounds, 1)
    if said.suite != "drain" or said.quick or said.only:
        return run(measures, rounds, scale, said.json)
    code = run(measures, rounds, scale, str(DRAINED))
    DRAIN.write_text(drain_svg(json.loads(DRAINED.read_text())["rows"]))
    return code


if __name__ == "__main__":
    sys.exit(main())
