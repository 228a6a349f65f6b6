"""``./dev mutants [WORD…] [--short] [--generate engine|lua|sql]``: do the tests detect planted defects?

Without ``--generate`` it runs the table (`table.toml`): each mutant in a copy of the tree, with the test that is meant
for it, which must pass on the tree itself. The exit code is 1 if a mutant survives, exceeds its time limit, or does not
fit the sources any more.

With ``--generate`` it samples small edits of a part of the sources, runs the tests of that part, and lists the
survivors. Some of them are equivalent to the original, so the exit code is 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Literal

from msgspec import Struct, convert

from tests.mutants.generate import PARTS, sample

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "benchmarks", "docs", "examples", "pyproject.toml", "README.md", "dev")
LINKED = (".dev",)  # fetched servers
Verdict = Literal["killed", "SURVIVED", "TOO SLOW", "DOES NOT FIT", "BROKEN TEST"]


class Edit(Struct, frozen=True):
    file: str
    old: str
    new: str


class Mutant(Struct, frozen=True):
    name: str
    test: str  # arguments of pytest
    seconds: float
    edit: tuple[Edit, ...]
    short: bool = False


class Table(Struct, frozen=True):
    mutant: tuple[Mutant, ...]


def read_table() -> tuple[Mutant, ...]:
    text = (Path(__file__).parent / "table.toml").read_text("utf-8")
    return convert(tomllib.loads(text), Table).mutant


class Tree:
    """A copy of the tree, which mutants are applied to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = ""  # of the last run
        self._originals: dict[Path, str] = {}
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(ROOT / name, folder / name)
        for name in LINKED:
            (folder / name).symlink_to(ROOT / name)

    def apply(self, mutant: Mutant) -> bool:
        """False: a text to be replaced does not occur exactly once."""
        for edit in mutant.edit:
            path = self.folder / edit.file
            text = path.read_text("utf-8") if path.exists() else ""
            if text.count(edit.old) != 1:
                return False
            self._originals.setdefault(path, text)
            path.write_text(text.replace(edit.old, edit.new), "utf-8")
        return True

    def restore(self) -> None:
        for path, text in self._originals.items():
            path.write_text(text, "utf-8")
        self._originals.clear()

    def run(self, test: str, seconds: float) -> int | None:
        """The exit code of pytest; None: it took too long."""
        path = os.pathsep.join([str(self.folder / "src"), str(self.folder)])
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *test.split()]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            self.output = process.communicate(timeout=seconds)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its servers and workers end with it
            self.output = process.communicate()[0].decode(errors="replace")
            return None
        return process.returncode


def check(tree: Tree, mutant: Mutant, passed: dict[str, bool]) -> Verdict:
    """`passed` remembers which tests pass on the tree itself."""
    if mutant.test not in passed:
        passed[mutant.test] = tree.run(mutant.test, 3 * mutant.seconds) == 0
    if not passed[mutant.test]:
        return "BROKEN TEST"
    try:
        if not tree.apply(mutant):
            return "DOES NOT FIT"
        code = tree.run(mutant.test, mutant.seconds)
    finally:
        tree.restore()
    verdicts: dict[int | None, Verdict] = {0: "SURVIVED", 1: "killed", None: "TOO SLOW"}
    return verdicts.get(code, "BROKEN TEST")


def run_table(mutants: list[Mutant]) -> int:
    bad = 0
    passed: dict[str, bool] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Tree(Path(folder))
        for mutant in mutants:
            began = time.monotonic()
            verdict = check(tree, mutant, passed)
            print(f"{verdict:12} {time.monotonic() - began:5.0f} s  {mutant.name}", flush=True)
            if verdict != "killed":
                bad += 1
                print("\n".join(tree.output.splitlines()[-15:]), flush=True)
    print(f"{len(mutants) - bad} of {len(mutants)} mutants of the table are killed by the test that is meant for them")
    return int(bad > 0)


def run_generated(part: str, number: int, seed: int) -> int:
    tests = PARTS[part].tests
    edits = sample(ROOT, part, number, seed)
    survived = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Tree(Path(folder))
        began = time.monotonic()
        if tree.run(tests, 900) != 0:
            print(tree.output[-3_000:])
            return 1
        limit = 60 + 3 * (time.monotonic() - began)
        for place, old, new in edits:
            mutant = Mutant(place.text, tests, limit, (Edit(place.file, old, new),))
            tree.apply(mutant)
            code = tree.run(tests, limit)
            tree.restore()
            if code == 0:
                survived += 1
                print(f"SURVIVED {place.text}", flush=True)
    print(f"{part}, seed {seed}: {survived} of {len(edits)} generated mutants survived `pytest {tests}`")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose name contains one of these")
    parser.add_argument("--short", action="store_true", help="only those marked as short, for a look before a commit")
    parser.add_argument("--generate", choices=PARTS, help="sample edits of this part instead of the table")
    parser.add_argument("--number", type=int, default=20, help="how many edits to sample (20)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.generate:
        return run_generated(options.generate, options.number, options.seed)
    mutants = [
        mutant
        for mutant in read_table()
        if (mutant.short or not options.short)
        and (not options.words or any(word in mutant.name for word in options.words))
    ]
    return run_table(mutants)


if __name__ == "__main__":
    sys.exit(main())
