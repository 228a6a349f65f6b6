"""The scheduler is the program: it runs until Ctrl+C, then start() returns.

python examples/blocking.py
"""

from __future__ import annotations

from onthedot import App, IntervalSchedule

app = App("clock", store="memory://")


@app.task(schedule=IntervalSchedule(interval=0.2))
async def tick() -> None:
    print("tick", flush=True)


if __name__ == "__main__":
    app.start()
    print("bye", flush=True)
