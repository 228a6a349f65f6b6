"""`./dev sim`: runs seeds, replays one with a trace, or runs a planted bug until it is found."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings

from tests.sim.planted_bugs import PLANTED
from tests.sim.scenario import Options, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=150, help="how many seeds, from --first on")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int, help="one seed only")
    parser.add_argument("--bug", choices=[*PLANTED, "all"], help="plant a bug; it must be found")
    parser.add_argument("--trace", action="store_true", help="print every call, fault and run")
    given = parser.parse_args()
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.seeds)
    if given.bug is not None:
        return find_bugs([given.bug] if given.bug != "all" else list(PLANTED), given)
    failed = 0
    for seed in seeds:
        result = run_seed(Options(seed), trace=given.trace)
        if given.trace:
            print("\n".join(result.trace))
        if result.violation is not None:
            failed += 1
        print(f"seed {seed}: {result.violation or 'ok'} ({result.steps} steps, digest {result.digest:08x})", flush=True)
    return min(failed, 1)


def find_bugs(names: list[str], given: argparse.Namespace) -> int:
    """Runs seeds with each bug until one fails."""
    missed = 0
    for name in names:
        for seed in [given.seed] if given.seed is not None else range(given.first, given.first + given.seeds):
            result = run_seed(Options(seed), PLANTED[name], trace=given.trace)
            if result.violation is not None:
                print("\n".join([*result.trace, f"{name}: found by seed {seed}: {result.violation}"]), flush=True)
                break
        else:
            missed += 1
            print(f"{name}: not found", flush=True)
    return min(missed, 1)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets have the same order in every process
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]])
    logging.disable()
    warnings.simplefilter("ignore")  # coroutines of crashed nodes are never awaited
    sys.exit(main())
