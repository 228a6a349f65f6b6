"""A fresh clone with only Python: the command of the page installs all that the example needs."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from examples.genesis.__main__ import INSTALL
from tests.acceptance.row_e.test_genesis import BATCH, genesis
from tests.support.services.programs import give_up
from tests.support.source_files import ROOT

pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "how-to" / "genesis.md"


def stated_command() -> str:
    (line,) = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("pip install")]
    return line


def test_hint_of_a_missing_package_is_the_command_of_the_page() -> None:
    assert stated_command() == INSTALL


def test_stated_install_is_enough_for_items(tmp_path: Path) -> None:
    """In an environment that has nothing else. The page for operators is not built for it."""
    environment = tmp_path / "environment"
    packages = shlex.split(stated_command())[2:]
    installed = subprocess.run(
        [str(ROOT / "dev"), "environment", str(environment), *packages],
        cwd=ROOT, env={**os.environ, "ONTHEDOT_BUILD_PAGE": "skip"},
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    if installed.returncode:
        give_up(f"{stated_command()}: {installed.stderr[-400:]}")
    with genesis(tmp_path, python=str(environment / "bin" / "python")) as example:
        answer = example.post("/sessions/s-1/detail-batches", BATCH, key="cmd-1")[1]
        made = example.made(answer["events_url"])
        assert len(made) == len(set(made)) == BATCH["count"]
