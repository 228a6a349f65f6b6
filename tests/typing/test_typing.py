"""mypy and pyright accept correct calls of users and refuse wrong ones."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KINDS = ("", "_flows", "_streams", "_batches", "_events", "_fastapi", "_prefect")
GOOD = [HERE / f"use{kind}_ok.py" for kind in KINDS]
BAD = [HERE / f"use{kind}_bad.py" for kind in KINDS]

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("mypy", "pyright")),
        reason="the type checkers (group lint) are installed for the default Python only",
    ),
]


def run(*command: str, folder: Path) -> str:
    """Runs outside of the repository, so that its settings do not apply."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # pyright looks for `python` there
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr  # above 1: the checker itself failed
    return done.stdout


def mypy(file: Path, folder: Path) -> set[int]:
    """Lines with an error."""
    shutil.copy(file, folder)
    out = run("mypy", "--strict", "--enable-error-code", "unused-awaitable", file.name, folder=folder)
    assert "1 source file" in out, out
    return {int(line) for line in re.findall(rf"^{file.name}:(\d+): error", out, re.MULTILINE)}


def pyright(file: Path, folder: Path) -> set[int]:
    """Lines with an error."""
    shutil.copy(file, folder)
    report = json.loads(run("pyright", "--outputjson", file.name, folder=folder))
    assert report["summary"]["filesAnalyzed"] == 1, report
    found = (error for error in report["generalDiagnostics"] if error["severity"] == "error")
    return {error["range"]["start"]["line"] + 1 for error in found}


Checker = Callable[[Path, Path], set[int]]
checkers = pytest.mark.parametrize("errors_in", [mypy, pyright])


@checkers
@pytest.mark.parametrize("file", GOOD, ids=lambda file: file.stem)
def test_right_use_is_accepted(errors_in: Checker, file: Path, tmp_path: Path) -> None:
    assert errors_in(file, tmp_path) == set()


@checkers
@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_each_wrong_use_is_refused_and_nothing_else(errors_in: Checker, file: Path, tmp_path: Path) -> None:
    marked = {number for number, line in enumerate(file.read_text("utf-8").splitlines(), 1) if "  # E " in line}
    assert marked
    assert errors_in(file, tmp_path) == marked


def test_every_public_type_is_known(tmp_path: Path) -> None:
    report = json.loads(
        run("pyright", "--verifytypes", "onthedot", "--ignoreexternal", "--outputjson", folder=tmp_path)
    )
    unknown = [
        f"{symbol['name']}: {symbol['diagnostics']}"
        for symbol in report["typeCompleteness"]["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
    ]
    assert unknown == []
    assert report["typeCompleteness"]["completenessScore"] == 1
