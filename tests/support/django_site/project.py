"""A Django project in a folder of a test: `examples/django_shop` and the app `expectations`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.services.django_environment import ROOT, Release, environment

EXAMPLE = ROOT / "examples" / "django_shop"
PARTS = Path(__file__).parent
_TIMEOUT = 60.0  # seconds


@dataclass
class DjangoProject:
    """Its folder, the interpreter with Django, and settings of the environment."""

    folder: Path
    python: Path
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> Mapping[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "ONTHEDOT_"))}
        return {
            **inherited,
            "PYTHONPATH": f"{ROOT / 'src'}",
            "DJANGO_SETTINGS_MODULE": "site_settings",
            **self.settings,
        }

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A program of the project, such as ``run("manage.py", "migrate")``."""
        return subprocess.run(
            self._command(words), cwd=cwd or self.folder, env=self.environment, capture_output=True, text=True,
            check=False, timeout=_TIMEOUT,
        )  # fmt: skip

    def check(self, *words: str) -> str:
        """The output of a program that must succeed."""
        done = self.run(*words)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    @contextmanager
    def running(self, *words: str, ready: str) -> Iterator[subprocess.Popen[str]]:
        """A program that runs until the block ends; it is ready when it has printed a line with this text."""
        process = subprocess.Popen(
            self._command(words), cwd=self.folder, env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if ready in line:
                    break
            else:
                raise AssertionError(f"{' '.join(words)} has ended: {''.join(lines)}")
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=_TIMEOUT)

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [str(self.python), "-W", "error::ResourceWarning", *words]


def make_project(folder: Path, release: Release, **settings: str) -> DjangoProject:
    """Copies the example, whose tasks are those of ``django_tasks`` on Django 5.2, and migrates its database."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.db*", "__pycache__"))
    shutil.copytree(PARTS / "expectations", folder / "expectations")
    for name in ("run_cases.py", "site_settings.py"):
        shutil.copy(PARTS / name, folder)
    if release == "5.2":
        for file in folder.rglob("*.py"):
            file.write_text(file.read_text("utf-8").replace("django.tasks", "django_tasks"), "utf-8")
    project = DjangoProject(folder, environment(release), settings)
    project.check("manage.py", "migrate", "-v0")
    return project
