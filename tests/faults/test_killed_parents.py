"""Workers are killed around `ctx.run`: a child is added with the wait for it, runs once, and its result is not lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import durable_app
from tests.faults.server_stores import PROCESS_STORES, ServerStore
from tests.faults.worker_processes import wait_for, worker_processes
from tests.support.waits import SOON

pytestmark = [pytest.mark.fault, pytest.mark.once, pytest.mark.timeout(120)]

PROGRAM = "tests.faults.durable_app"
LEASE = 1.0


@pytest.mark.parametrize("server_store", PROCESS_STORES, indirect=True)
@pytest.mark.parametrize("point", ["suspension", "child", "resumed", "result"])
def test_children_run_once_although_the_parent_is_killed(
    server_store: ServerStore, run_log_path: Path, point: str
) -> None:
    url = server_store.url(LEASE)
    with durable_app.app.override(store=url), worker_processes(url, run_log_path, 1, PROGRAM) as workers:
        handle = durable_app.parent.delay(point)
        deaths = 0

        def replace_dead() -> None:
            nonlocal deaths
            deaths += workers.replace_dead()

        wait_for(handle.done, 3 * SOON, replace_dead)
        assert handle.result(SOON) == [6, 6]
        assert deaths == 1
        assert handle.info().attempt == (1 if point == "child" else 2)
        sources = [task.source for task in durable_app.app.sync.find()]
    lines = run_log_path.read_text().splitlines()
    assert sorted(lines) == [f"child {number}" for number in range(durable_app.CHILDREN + 1)]
    assert sorted(sources) == ["add_up", *["child"] * (durable_app.CHILDREN + 1), "parent"]
