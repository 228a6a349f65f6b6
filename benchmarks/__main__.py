"""``./dev bench [NAME] [--quick] [--json FILE]``"""

from __future__ import annotations

import argparse
import json
import os
import sys

from benchmarks import (
    batches,
    change_reads,
    event_acknowledgements,
    event_agents,
    event_paths,
    event_relays,
    events,
    find,
    flow_cancel,
    flow_costs,
    flow_delays,
    kafka,
    limits,
    loss,
    memory,
    metrics,
    page,
    postgres,
    postgres_events,
    processes,
    redis,
    settle,
    sqlite,
    streams,
    waiting_tasks,
    worker,
)
from benchmarks.events_table import EVENTS, write_events_table
from benchmarks.page_figures import FIGURES, keep_figures
from benchmarks.plots import DRAIN, DRAINED, drain_svg
from benchmarks.report import run
from benchmarks.worker_table import WORKER, write_worker_table

SUITES = {
    "batches": batches.MEASURES,
    "changes": change_reads.MEASURES,
    "core": memory.MEASURES + sqlite.MEASURES,
    "memory": memory.MEASURES,
    "metrics": metrics.MEASURES,
    "page": page.MEASURES,
    "sqlite": sqlite.MEASURES,
    "redis": redis.MEASURES,
    "postgres": postgres.MEASURES,
    "processes": processes.MEASURES,
    "limits": limits.MEASURES,
    "settle": settle.MEASURES,
    "events": events.MEASURES
    + postgres_events.MEASURES
    + kafka.MEASURES
    + event_relays.MEASURES
    + event_agents.MEASURES
    + event_paths.MEASURES
    + event_acknowledgements.MEASURES,
    "kafka": kafka.MEASURES,
    "find": find.MEASURES,
    "flows": flow_costs.MEASURES + flow_cancel.MEASURES + flow_delays.MEASURES,
    "waiting": waiting_tasks.MEASURES,
    "streams": streams.MEASURES,
    "worker": worker.MEASURES,
    "drain": [memory.drain, sqlite.sqlite_drain, redis.redis_drain, postgres.postgres_drain],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("suite", nargs="?", default="core", choices=[*SUITES, "loss"])
    parser.add_argument("--only", help="measures whose name contains this")
    parser.add_argument("--rounds", type=int, help="number of interleaved rounds for the medians (5; page: 1)")
    parser.add_argument("--quick", action="store_true", help="one small round that only shows whether it runs")
    parser.add_argument("--before", help="flows, find: a checkout of an older tree, which is measured too")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    if options.before:
        os.environ[flow_costs.BEFORE] = options.before
    options.rounds = options.rounds or (1 if options.suite == "page" else 5)
    if options.suite == "loss":  # counts lost tasks instead of ratios
        return loss.run(
            rounds=1 if options.quick else options.rounds, scale=0.3 if options.quick else 1, file=options.json
        )
    measures = [measure for measure in SUITES[options.suite] if not options.only or options.only in measure.__name__]
    rounds, scale = (1, 0.05) if options.quick else (options.rounds, 1)
    if options.suite == "page" and not options.quick:
        new = FIGURES.with_suffix(".new")
        code = run(measures, rounds, scale, str(new))
        keep_figures(json.loads(new.read_text())["rows"])
        new.unlink()
        return code
    if options.quick or options.only or options.suite not in ("drain", "events", "worker"):
        return run(measures, rounds, scale, options.json)
    if options.suite == "events":
        code = run(measures, rounds, scale, str(EVENTS))
        write_events_table(json.loads(EVENTS.read_text())["rows"])
        return code
    if options.suite == "worker":
        code = run(measures, rounds, scale, str(WORKER))
        write_worker_table(json.loads(WORKER.read_text())["rows"])
        return code
    code = run(measures, rounds, scale, str(DRAINED))
    DRAIN.write_text(drain_svg(json.loads(DRAINED.read_text())["rows"]))
    return code


if __name__ == "__main__":
    sys.exit(main())
