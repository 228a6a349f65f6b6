"""Searching for seeds that fail: over several processes, with known seeds first, and shrinking of what is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import NamedTuple

from tests.sim.faults import KINDS, OF_STORE
from tests.sim.planted_bugs import NO_BUG, PLANTED
from tests.sim.scenario import Options, Result, run_seed

KNOWN = Path(__file__).with_name("seeds.txt")
_CHECKED_TWICE = 100  # one seed of so many runs twice, and must give the same digest
_CHUNK = 4  # seeds that a process takes at once
_CHUNKS_PER_PROCESS = 6  # a scenario leaves about 3 MB, which its process never frees


def known_seeds(path: Path = KNOWN) -> list[tuple[Options, str]]:
    """The seeds of a file like `seeds.txt`, each with its reason."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return [(parse_options(options), reason) for options, _, reason in (line.partition(" # ") for line in lines)]


def parse_options(text: str) -> Options:
    """
    >>> parse_options("8 store=memory nodes=2 seconds=12.5 without=late,crash").nodes
    2
    """
    seed, *fields = text.split()
    given = dict(field.split("=") for field in fields)
    left_out = given.get("without", "").split(",")
    kinds = tuple(kind for kind in KINDS if kind not in left_out)
    nodes = int(given.get("nodes", 0))
    seconds = float(given.get("seconds", 25))
    return Options(int(seed), kinds, nodes, seconds, given.get("store", "memory"), "flows" in given, "bursts" in given)


def options_text(options: Options) -> str:
    """The text of which `parse_options` makes the same options."""
    left_out = [kind for kind in KINDS if kind in OF_STORE[options.store] and kind not in options.kinds]
    text = f"{options.seed} store={options.store} nodes={options.nodes} seconds={options.seconds:g}"
    if options.flows:
        text += " flows=yes"
    if options.bursts:
        text += " bursts=yes"
    return f"{text} without={','.join(left_out)}" if left_out else text


def run_all(options: Iterable[Options], processes: int) -> Iterator[tuple[Options, Result]]:
    """Runs seeds in processes of their own, and returns the results in the order of the seeds."""
    with _new_pool(processes, _CHUNKS_PER_PROCESS) as pool:
        yield from pool.imap(_run, options, chunksize=_CHUNK)


def _new_pool(processes: int, chunks: int) -> Pool:
    return get_context("fork").Pool(processes, maxtasksperchild=chunks)


def _run(options: Options) -> tuple[Options, Result]:
    result = run_seed(options)
    if options.seed % _CHECKED_TWICE == 0 and result.violation is None:
        again = run_seed(options)
        if again.digest != result.digest:
            result.violation = f"determinism: digests {result.digest:08x} and {again.digest:08x}"
    return options, result


class Search(NamedTuple):
    """The seeds that are tried with one planted bug."""

    bug: str
    candidates: Sequence[Options]


class Found(NamedTuple):
    """The first seed that fails with a planted bug, and how."""

    bug: str
    options: Options | None = None  # None: no seed has found it
    violation: str | None = None


def find_bugs(searches: Iterable[Search], processes: int) -> Iterator[Found]:
    """Each search has a process of its own."""
    with _new_pool(processes, 1) as pool:
        yield from pool.imap(find_bug, searches)


def find_bug(search: Search) -> Found:
    for options in search.candidates:
        result = run_seed(options, PLANTED[search.bug])
        if result.violation is not None:
            return Found(search.bug, options, result.violation)
    return Found(search.bug)


def shrink(options: Options, bug: str = "", report: Callable[[str], object] = print) -> Options:
    """Leaves out kinds of faults, nodes and time, as long as the same invariant fails."""
    planted = PLANTED[bug] if bug else NO_BUG
    invariant = _invariant(run_seed(options, planted))
    for smaller in _attempts(options):
        candidate = smaller(options)
        if candidate != options and _invariant(run_seed(candidate, planted)) == invariant:
            options = candidate
            report(f"still {invariant}: {options_text(options)}")
    return options


def _attempts(options: Options) -> Sequence[Callable[[Options], Options]]:
    def without(kind: str) -> Callable[[Options], Options]:
        return lambda current: replace(current, kinds=tuple(each for each in current.kinds if each != kind))

    def with_nodes(nodes: int) -> Callable[[Options], Options]:
        return lambda current: current if current.nodes else replace(current, nodes=nodes)

    def shorter(current: Options) -> Options:
        return replace(current, seconds=current.seconds / 2)

    kinds = [kind for kind in options.kinds if kind in OF_STORE[options.store]]
    return [*map(without, kinds), with_nodes(2), with_nodes(3), shorter, shorter, shorter]


def _invariant(result: Result) -> str:
    return "" if result.violation is None else result.violation.partition(":")[0]
