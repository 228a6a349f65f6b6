"""The programs of the README and the docs print the output that the pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/how-to/schedules.md")
PROGRAM = re.compile(r"^```python\n(.*?)^```(?:\n\n?```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
PROGRAMS = [found for page in PAGES for found in PROGRAM.findall((ROOT / page).read_text("utf-8"))]


@pytest.mark.parametrize("page", PAGES)
def test_page_has_an_example(page: str) -> None:
    assert PROGRAM.search((ROOT / page).read_text("utf-8"))


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_program_prints_the_documented_output(program: str, output: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(program, "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONTHEDOT_")}
    run = subprocess.run(
        [sys.executable, "-W", "error", file.name],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == output
