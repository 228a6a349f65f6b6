"""The simulation in CI: known seeds, new seeds, and every planted bug."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.once, pytest.mark.search, pytest.mark.timeout(600)]


def simulate(*arguments: str) -> str:
    """The last line of the output; in a process of its own, since the order of sets must not be random."""
    done = subprocess.run([sys.executable, "-m", "tests.sim", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_no_seed_violates_an_invariant_on_the_memory_store() -> None:
    simulate("--seeds", "150")


def test_no_seed_violates_an_invariant_on_the_sqlite_store() -> None:
    simulate("--seeds", "20", "--store", "sqlite")


@pytest.mark.parametrize(("store", "seeds"), [("memory", "60"), ("sqlite", "10")])
def test_no_seed_violates_an_invariant_of_flows(store: str, seeds: str) -> None:
    simulate("--flows", "--seeds", seeds, "--store", store)


@pytest.mark.parametrize(("store", "seeds"), [("memory", "40"), ("sqlite", "10")])
def test_no_seed_violates_an_invariant_when_tasks_are_claimed_ahead(store: str, seeds: str) -> None:
    simulate("--bursts", "--seeds", seeds, "--store", store)


def test_every_planted_bug_is_found() -> None:
    simulate("--bug", "all")


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_same_seed_gives_the_same_steps_in_another_process(store: str) -> None:
    first = simulate("--seed", "3", "--store", store)
    assert simulate("--seed", "3", "--store", store) == first
