"""An environment with Prefect, and a database that has been migrated: both are made once, in ``.dev/prefect``.

Prefect pins a hundred packages, so it gets an environment of its own. ``ONTHEDOT_TEST_PREFECT_PYTHON`` names the
interpreter of another one. ``./dev test`` makes it before the tests begin, so that no test waits for it.

    python -m tests.support.services.prefect_environment
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support.services.programs import Missing

ROOT = Path(__file__).parents[3]
PLACE = ROOT / ".dev" / "prefect"
REQUIREMENTS = ("prefect==3.8.8", "fastapi<0.151")  # the server of 3.8.8 does not start with a newer FastAPI
SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
}
_PATIENCE = 600.0  # seconds, to download and to migrate


class PrefectEnvironment(NamedTuple):
    """An interpreter with Prefect, and a migrated database."""

    python: Path
    database: Path

    def copy_database(self, target: Path) -> None:
        with closing(sqlite3.connect(self.database)) as template, closing(sqlite3.connect(target)) as copy:
            template.backup(copy)


def settings(home: Path, **more: str) -> dict[str, str]:
    """The environment of a process that uses Prefect, without settings of the person who runs the tests.

    home: what it leaves is there, too: a runner keeps a folder in TMPDIR.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**inherited, **SETTINGS, "PREFECT_HOME": str(home), "TMPDIR": str(home), **more}


def database_setting(file: Path) -> dict[str, str]:
    return {"PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{file}"}


@cache
def environment() -> PrefectEnvironment:
    """Makes it in the first call of any process. Missing: it cannot be made."""
    if sys.platform == "win32":
        raise Missing("the tests start Prefect on Linux and macOS only")
    PLACE.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("ONTHEDOT_TEST_PREFECT_PYTHON")
    made = PrefectEnvironment(Path(given or PLACE / "environment" / "bin" / "python"), PLACE / "template.db")
    wanted = f"{given or ' '.join(REQUIREMENTS)}\n"
    done = PLACE / "done"
    with _alone():
        if not done.exists() or done.read_text() != wanted:
            done.unlink(missing_ok=True)
            if given is None:
                _install()
            _migrate(made)
            done.write_text(wanted)
    return made


@contextmanager
def _alone() -> Iterator[None]:
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install() -> None:
    """With the dependencies of onthedot, which flows import; without bytecode each start would take 8 s longer."""
    folder = str(PLACE / "environment")
    packages = ("-r", "pyproject.toml", *REQUIREMENTS)
    _run([str(ROOT / "dev"), "environment", folder, "--compile-bytecode", *packages], os.environ, "installed")


def _migrate(made: PrefectEnvironment) -> None:
    for file in PLACE.glob(f"{made.database.name}*"):
        file.unlink()
    with tempfile.TemporaryDirectory(prefix="prefect-") as home:
        command = [str(made.python), "-m", "prefect", "server", "database", "upgrade", "-y"]
        _run(command, settings(Path(home), **database_setting(made.database)), "migrated")


def _run(command: list[str], environment: Mapping[str, str], what: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"Prefect cannot be {what}: {error}") from error
    if done.returncode:
        raise Missing(f"Prefect cannot be {what}: {(done.stderr.strip() or done.stdout.strip())[-400:]}")


if __name__ == "__main__":
    try:
        environment()
    except Missing as missing:  # a test that needs it reports it again
        print(missing, file=sys.stderr)
