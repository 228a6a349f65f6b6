"""A small checkout with the sources of the page, and the build backend in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
UNREACHABLE = "http://127.0.0.1:9/"  # of npm; the port `discard`: connections are refused
_FILES = ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "src/onthedot/__init__.py", "src/onthedot/py.typed")
_BACKEND = """
import json, sys
from hatchling import build
requires, artifact = json.loads(sys.argv[1])
needed = getattr(build, requires)()
print(json.dumps([needed, getattr(build, artifact)(sys.argv[2])]))
"""


class Built(NamedTuple):
    requires: list[str]
    file: Path
    warnings: str


class Checkout:
    """node_modules: those of the repository, so that only the bundle is made."""

    def __init__(self, folder: Path, *, node_modules: bool) -> None:
        self.folder = folder
        for name in _FILES:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        shutil.copytree(ROOT / "page", folder / "page", ignore=shutil.ignore_patterns("node_modules", "generated"))
        if node_modules:
            (folder / "page" / "node_modules").symlink_to(ROOT / "page" / "node_modules")

    @property
    def static(self) -> Path:
        return self.folder / "src" / "onthedot" / "web" / "static"

    def build(self, kind: str, **environment: str) -> Built:
        """kind: sdist or wheel."""
        steps = json.dumps([f"get_requires_for_build_{kind}", f"build_{kind}"])
        target = self.folder / "dist"
        inherited = {name: value for name, value in os.environ.items() if name != "ONTHEDOT_BUILD_PAGE"}
        done = subprocess.run(
            [sys.executable, "-c", _BACKEND, steps, str(target)],
            cwd=self.folder, env={**inherited, **environment}, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        if done.returncode:
            raise BuildFailed(done.stderr)
        requires, name = json.loads(done.stdout.splitlines()[-1])
        return Built(requires, target / name, done.stdout + done.stderr)


class BuildFailed(Exception):
    pass
