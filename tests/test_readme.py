"""The README's programs do what it says: each is run as a user would, in a folder and a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```(?:\n\n?```text\n(.*?)^```)?", README, re.DOTALL | re.MULTILINE)


def test_there_is_an_example() -> None:
    assert PROGRAMS


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_program(program: str, output: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(program, "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONTHEDOT_")}
    run = subprocess.run(
        [sys.executable, "-W", "error", file.name],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == output
