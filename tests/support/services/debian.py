"""Programs that are not available as wheels: Redis with TLS, PgBouncer, Postgres with TLS, Chromium, promtool.

Each is found in this order: ``ONTHEDOT_TEST_<NAME>_PROGRAM`` (a path) → the project's own download of Debian's packages
into ``.dev/debian`` (no root needed, nothing is installed; done once) → a program on PATH → a skip, or a
failure with ``--require-services``. ``./dev test`` downloads before the tests begin, so that no test waits for it.

    python -m tests.support.services.debian
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.support.services.programs import Missing, Program, give_up

DEV = Path(__file__).parents[3] / ".dev"
PLACE = DEV / "debian"
PACKAGES = {  # program: package
    "redis-server": "redis-server",
    "pgbouncer": "pgbouncer",
    "postgres": "postgresql",
    "chromium-headless-shell": "chromium-headless-shell",
    "promtool": "prometheus",
}
_WITHOUT_DEPENDENCIES = ("prometheus",)  # they are for its page
_UNUSED = ("usr/bin/prometheus",)  # 50 MB
_FOLDERS = ("usr/bin", "usr/sbin", "usr/lib/postgresql/*/bin", "usr/lib/chromium")
_DONE = PLACE / "done"
_WANTED = " ".join(PACKAGES.values())
_LARGE = ("libllvm",)  # an optional part of Postgres: it compiles queries
_TRIES = 3
_ANSWER = 120.0  # seconds for one command of apt


@cache
def program(name: str) -> Program:
    variable = f"ONTHEDOT_TEST_{name.replace('-', '_').upper()}_PROGRAM"
    if given := os.environ.get(variable):
        if not Path(given).is_file():
            raise Missing(f"{variable} names {given}, which is not there")
        return Program(given)
    trouble = _download(name)
    if found := _below(PLACE / "root", name):
        libraries = {str(path.parent) for path in (PLACE / "root").glob("**/lib/**/*.so*")}
        return Program(str(found), ":".join(sorted(libraries)))
    if on_path := shutil.which(name) or _below(Path("/"), name):
        return Program(str(Path(on_path).resolve()))  # resolves links: its other files are beside the program
    raise Missing(f"no {name}: {trouble or 'its package has no such program'}; {variable} may name one")


def wanted(name: str) -> Program:
    """The program, or a skip of the test that needs it."""
    try:
        return program(name)
    except Missing as missing:
        give_up(missing)


def _below(root: Path, name: str) -> Path | None:
    found = [path / name for folder in _FOLDERS for path in root.glob(folder) if (path / name).is_file()]
    return found[-1] if found else None


def _download(name: str) -> str:
    """Downloads all packages at once, in the first call of any process; returns the error, or an empty text."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return "it is downloaded with apt-get and dpkg, which are not here"
    PLACE.mkdir(parents=True, exist_ok=True)
    with _alone():
        if not is_complete():
            trouble = _fetched()
            if trouble:
                return trouble  # the next run tries again
            _DONE.write_text(_WANTED)
    return f"{PACKAGES[name]} is not among the packages of this machine"


def is_complete() -> bool:
    return _DONE.exists() and _DONE.read_text() == _WANTED


@contextmanager
def _alone() -> Iterator[None]:
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetched() -> str:
    """Retries with a new package list, because an old list may name files that no longer exist."""
    trouble = ""
    own = PLACE / "lists"
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(attempt)
            (own / "partial").mkdir(parents=True, exist_ok=True)
            trouble = _apt("update") or trouble
        trouble = _fetch_missing()
        if not trouble:
            shutil.rmtree(own, ignore_errors=True)
            return ""
    return f"{_TRIES} tries to download {', '.join(PACKAGES.values())} failed, the last with: {trouble}"


def _fetch_missing() -> str:
    """Downloads the packages that apt would install; libraries of the machine are not downloaded."""
    whole = [name for name in PACKAGES.values() if name not in _WITHOUT_DEPENDENCIES]
    plan = _run("install", "--simulate", "--no-install-recommends", *whole)
    if plan.returncode:
        return _error_text(plan)
    new = [name for name in re.findall(r"^Inst (\S+) \(", plan.stdout, re.MULTILINE) if not name.startswith(_LARGE)]
    new += _WITHOUT_DEPENDENCIES
    root = PLACE / "root"
    files = PLACE / "files"
    for folder in (root, files):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    trouble = _apt("download", *new, folder=files)
    for file in files.glob("*.deb") if not trouble else ():
        unpacked = subprocess.run(["dpkg", "-x", file, root], capture_output=True, text=True, check=False)
        trouble = trouble or _error_text(unpacked)
    for name in _UNUSED:
        (root / name).unlink(missing_ok=True)
    shutil.rmtree(files, ignore_errors=True)
    return trouble


def _apt(*command: str, folder: Path = PLACE) -> str:
    return _error_text(_run(*command, folder=folder))


def _run(*command: str, folder: Path = PLACE) -> subprocess.CompletedProcess[str]:
    options = [f"-oAcquire::{name}" for name in ("Retries=2", "http::Timeout=20", "https::Timeout=20")]
    options.append("-oAPT::Sandbox::User=")  # the folder does not belong to the user of apt
    if (PLACE / "lists").is_dir():
        options += ["-o", f"Dir::State::lists={PLACE / 'lists'}", "-o", f"Dir::Cache={PLACE / 'cache'}"]
        (PLACE / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    full_command = ["apt-get", "-q", *options, *command]
    try:
        environment = {**os.environ, "LC_ALL": "C"}
        return subprocess.run(
            full_command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_ANSWER
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(full_command, 1, "", f"apt-get {command[0]} took longer than {_ANSWER:g} s")


def _error_text(done: subprocess.CompletedProcess[str]) -> str:
    """Empty after success."""
    return "" if done.returncode == 0 else (done.stderr.strip() or done.stdout.strip() or "no output")[-400:]


if __name__ == "__main__":
    for each in PACKAGES:
        try:
            program(each)
        except Missing as missing:  # a test that needs it reports it again
            print(missing, file=sys.stderr)
