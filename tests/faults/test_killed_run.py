"""A test run that is killed leaves no worker behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import lives, start_script
from tests.support.waits import wait_until

pytestmark = pytest.mark.fault


def test_workers_end_with_a_killed_test_run(tmp_path: Path) -> None:
    """Worker processes, forked workers, and a supervisor with its child."""
    with start_script("killed_run.py", str(tmp_path)) as run:
        assert run.stdout is not None
        pids = [int(pid) for pid in run.stdout.readline().split()]
        run.kill()
    assert len(pids) == 6
    wait_until(lambda: not any(lives(pid) for pid in pids), timeout=10)
