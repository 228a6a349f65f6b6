"""A test run that is killed while its workers run: killed_run.py FOLDER. Prints a line when all of them run."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.faults import task_app
from tests.faults.machines import machines
from tests.faults.worker_processes import forked_workers, wait_for, worker_processes
from tests.support.app_access import worker_pids


def main(folder: Path) -> None:
    store = f"sqlite:///{folder}/shop.db"
    run_log = folder / "run_log"
    with (
        task_app.app.override(store=store),
        worker_processes(store, run_log, 1) as alone,
        forked_workers(store, run_log, 2) as parent,
        machines(1, store, run_log) as (machine,),
    ):
        wait_for(lambda: len(worker_pids(task_app.app)) == 4, 30)
        pids = worker_pids(task_app.app) | {alone.workers[0].pid, parent.pid, machine.supervisor.pid}
        print(*pids, flush=True)
        time.sleep(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
