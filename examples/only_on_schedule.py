"""A function that runs only on schedule: it has no delay().

python examples/only_on_schedule.py
"""

from __future__ import annotations

import time

from onthedot import App, IntervalSchedule

app = App("ticker", store="memory://")


@app.schedule(schedule=IntervalSchedule(interval=0.2))
def tick() -> None:
    print("tick", flush=True)


if __name__ == "__main__":
    with app.background():
        time.sleep(1)
    print("has delay():", hasattr(tick, "delay"))
