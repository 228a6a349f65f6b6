"""`./dev sim`: runs seeds, replays one with a trace, or plants bugs and looks whether they are found."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import warnings
from dataclasses import replace
from typing import Any

from tests.sim.planted_bugs import NO_BUG, PLANTED
from tests.sim.scenario import Options, run_seed
from tests.sim.search import Search, find_bugs, known_seeds, options_text, run_all, shrink

BOUNDS = {"memory": 15, "sqlite": 50}
"""Within so many seeds each planted bug must be found."""
FLOW_BOUND = 5
"""The same, for bugs of flows."""


def main() -> int:
    given = arguments()
    kind: dict[str, Any] = {"store": given.store, "flows": given.flows, "bursts": given.bursts}
    if given.seed is not None:
        return replay(Options(given.seed, **kind), given.bug, trace=given.trace)
    if given.bug:
        return plant(list(PLANTED) if given.bug == "all" else [given.bug], given)
    known = [options for options, _ in known_seeds() if options == replace(options, **kind)]
    seeds = range(given.first, given.first + (given.seeds or 150))
    new = [Options(seed, **kind) for seed in seeds]
    return search([*known, *new], given.processes)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev sim", description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many seeds, after those of seeds.txt; 150, with --bug fewer")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--store", choices=["memory", "sqlite"], default="memory")
    parser.add_argument("--flows", action="store_true", help="nodes also add flows, durable tasks and signals")
    parser.add_argument(
        "--bursts", action="store_true", help="nodes have 40 slots, and also add up to 400 tasks at once"
    )
    parser.add_argument("--bug", choices=[*PLANTED, "all"], help="plant a bug: it must be found")
    parser.add_argument("--seed", type=int, help="replay one seed")
    parser.add_argument("--trace", action="store_true", help="print every call, fault and run of the seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def search(seeds: list[Options], processes: int) -> int:
    """Runs seeds, and shrinks those that fail."""
    failed: list[Options] = []
    tasks = 0
    runs = 0
    digest = 0
    for number, (options, result) in enumerate(run_all(seeds, processes), 1):
        if number % 100 == 0:
            print(f"{number:,} of {len(seeds):,} seeds, {len(failed)} failed", file=sys.stderr, flush=True)
        tasks += result.tasks
        runs += result.runs
        digest ^= result.digest
        if result.violation is not None:
            failed.append(options)
            print(f"seed {options.seed} failed: {result.violation}", flush=True)
    for options in failed[:3]:
        print(f"for seeds.txt: {options_text(shrink(options))} # ", flush=True)
    print(f"{len(seeds)} seeds, {len(failed)} failed, {tasks:,} tasks, {runs:,} runs, digest {digest:08x}")
    return min(len(failed), 1)


def replay(options: Options, bug: str | None, *, trace: bool) -> int:
    result = run_seed(options, PLANTED[bug] if bug else NO_BUG, trace=trace)
    for line in result.trace:
        print(line)
    print(f"seed {options.seed}: {result.violation or 'ok'} ({result.steps:,} steps, digest {result.digest:08x})")
    return int(result.violation is not None)


def plant(names: list[str], given: argparse.Namespace) -> int:
    """Every bug must be found within the seeds."""
    missed = 0
    for found in find_bugs([_search(name, given) for name in names], given.processes):
        if found.options is None:
            missed += 1
            print(f"{found.bug}: not found", flush=True)
        else:
            print(f"{found.bug}: seed {found.options.seed}: {found.violation}", flush=True)
    print(f"{len(names)} planted bugs, {missed} not found")
    return min(missed, 1)


def _search(name: str, given: argparse.Namespace) -> Search:
    bug = PLANTED[name]
    most = FLOW_BOUND if bug.flows else BOUNDS[bug.store]
    seeds = range(given.first, given.first + (given.seeds or most))
    return Search(name, [Options(seed, store=bug.store, flows=bug.flows, bursts=bug.bursts) for seed in seeds])


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets have the same order in every process
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]])
    gc.freeze()  # the processes share the pages of the modules
    logging.disable()
    warnings.simplefilter("ignore")  # coroutines of crashed nodes are never awaited
    sys.exit(main())
