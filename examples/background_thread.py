"""A schedule in the background, while the program does something else.

python examples/background_thread.py
"""

from __future__ import annotations

import time

from onthedot import App, IntervalSchedule

app = App("heartbeat", store="memory://")


@app.task(schedule=IntervalSchedule(interval=0.2))
def beat() -> None:
    print("beat", flush=True)


if __name__ == "__main__":
    app.start(auto=True, threading=True)
    for number in range(3):
        print(f"the program goes on: {number}", flush=True)
        time.sleep(0.3)
    app.shutdown()
