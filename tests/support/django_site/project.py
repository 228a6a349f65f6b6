"""A Django project in a folder of a test: `examples/django_shop` and the app `expectations`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.services.django_environment import ROOT, Release, environment
from tests.support.waits import wait_until

EXAMPLE = ROOT / "examples" / "django_shop"
PARTS = Path(__file__).parent
_TIMEOUT = 150.0  # seconds


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

    def evaluate(self, *lines: str) -> Any:
        """The value of ``answer`` after these lines of Python, in a process of its own."""
        setup = ("import django, json", "django.setup()", "from expectations import tasks")
        printed = self.run("-c", "\n".join((*setup, *lines, "print(json.dumps(answer))")))
        assert printed.returncode == 0, printed.stderr
        return json.loads(printed.stdout.splitlines()[-1])

    @contextmanager
    def running(self, *words: str, ready: str, times: int = 1) -> Iterator[Path]:
        """A program that runs until the block ends, and the file with what it prints.

        It is ready when it has printed this text. times: so often, once per process.
        """
        printed = self.folder / f"{'-'.join(words[:2])}.log"
        with printed.open("w") as file:
            process = subprocess.Popen(
                self._command(words), cwd=self.folder, env=self.environment, stdout=file, stderr=subprocess.STDOUT
            )
        try:
            wait_until(lambda: printed.read_text("utf-8").count(ready) >= times or process.poll() is not None)
            assert process.poll() is None, printed.read_text("utf-8")
            yield printed
        finally:
            process.terminate()
            process.wait(_TIMEOUT)

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
