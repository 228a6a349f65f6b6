"""A worker that is killed while its task computes: killed_worker.py METHOD FOLDER"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from onthedot import App
from onthedot.executors.processes import Processes
from tests.support.programs.tasks import ignore_all

app = App("killed", store="memory://", executors={"own": Processes(1, method=sys.argv[1])})


@app.task(executor="own")
def compute(folder: str) -> None:
    ignore_all(Path(folder))


if __name__ == "__main__":
    with app.background():
        compute.delay(sys.argv[2])
        time.sleep(60)
