"""Environments with Django, made once, in ``.dev/django``: 6.1 on Python 3.12 or newer, and 5.2 with django-tasks.

``./dev test`` makes them before the tests begin, so that no test waits for them.

    python -m tests.support.services.django_environment
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from tests.support.services.programs import Missing

Release: TypeAlias = Literal["6.1", "5.2"]
ROOT = Path(__file__).parents[3]
PLACE = ROOT / ".dev" / "django"
COMMON = ("-r", "pyproject.toml", "--extra", "cli", "--extra", "postgres", "--extra", "web", "psycopg[binary]>=3.2")
PACKAGES: dict[Release, tuple[str, ...]] = {
    "6.1": ("django>=6.1,<6.2",),
    "5.2": ("django>=5.2,<5.3", "django-tasks==0.12.0"),
}
LEAST_PYTHON: dict[Release, str] = {"6.1": "3.12", "5.2": "3.11"}
_PATIENCE = 300.0  # seconds, to download


@cache
def environment(release: Release) -> Path:
    """Its interpreter. Makes it in the first call of any process. Missing: it cannot be made."""
    if sys.platform == "win32":
        raise Missing("workers run on Linux and macOS only")
    PLACE.mkdir(parents=True, exist_ok=True)
    packages = (*COMMON, *PACKAGES[release])
    wanted = f"{' '.join(packages)}\n{(ROOT / 'pyproject.toml').read_text().partition('[dependency-groups]')[0]}"
    done = PLACE / f"done-{release}"
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != wanted:
            done.unlink(missing_ok=True)
            _install(release, packages)
            done.write_text(wanted)
    return PLACE / release / "bin" / "python"


def _install(release: Release, packages: tuple[str, ...]) -> None:
    least = ("--least", LEAST_PYTHON[release])
    command = [str(ROOT / "dev"), "environment", *least, str(PLACE / release), "--compile-bytecode", *packages]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"Django {release} cannot be installed: {error}") from error
    if done.returncode:
        raise Missing(f"Django {release} cannot be installed: {(done.stderr.strip() or done.stdout.strip())[-400:]}")


if __name__ == "__main__":
    try:
        for each in PACKAGES:
            environment(each)
    except Missing as missing:  # a test that needs it reports it again
        print(missing, file=sys.stderr)
