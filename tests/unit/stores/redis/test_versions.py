"""The whole contract, and the claims about Redis, on the versions that people run.

Long, so by its own command: ``./dev test --quick -m slow tests/unit/stores/redis/test_versions.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.services import versions
from tests.support.services.programs import Missing, give_up

ROOT = Path(__file__).parents[4]
THESE = "redis and not test_versions and not test_tls and not test_topologies"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", ["debian", "6.2"])
def test_contract_holds_on_version(version: str, tmp_path: Path) -> None:
    try:
        program = versions.redis(version)
    except Missing as why:
        give_up(why)
    environment = {
        **os.environ, "ONTHEDOT_TEST_REDIS": program.path, "ONTHEDOT_TEST_REDIS_LIBRARIES": program.libraries,
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base")]
    folders = ["tests/contract", "tests/unit/stores/redis", "tests/model"]
    done = subprocess.run(
        [*command, "-k", THESE, *folders], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
