"""An environment with schemathesis, made once, in ``.dev/schemathesis``: it brings a plugin of pytest and its own pins.

``./dev test`` makes it before the tests begin, so that no test waits for it.

    python -m tests.support.services.schemathesis_environment
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.support.services.programs import Missing

ROOT = Path(__file__).parents[3]
PLACE = ROOT / ".dev" / "schemathesis"
REQUIREMENTS = ("schemathesis==4.32.5",)
_PATIENCE = 300.0  # seconds, to download


@cache
def environment() -> Path:
    """Its interpreter. Makes it in the first call of any process. Missing: it cannot be made."""
    PLACE.mkdir(parents=True, exist_ok=True)
    wanted = " ".join(REQUIREMENTS)
    done = PLACE / "done"
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != wanted:
            done.unlink(missing_ok=True)
            _install()
            done.write_text(wanted)
    return PLACE / "environment" / "bin" / "python"


def _install() -> None:
    command = [str(ROOT / "dev"), "environment", str(PLACE / "environment"), "--compile-bytecode", *REQUIREMENTS]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"schemathesis cannot be installed: {error}") from error
    if done.returncode:
        raise Missing(f"schemathesis cannot be installed: {(done.stderr.strip() or done.stdout.strip())[-400:]}")


if __name__ == "__main__":
    try:
        environment()
    except Missing as missing:  # a test that needs it reports it again
        print(missing, file=sys.stderr)
