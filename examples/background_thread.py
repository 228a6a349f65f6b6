"""A schedule in the background, while the program does something else.

python examples/background_thread.py
"""

from __future__ import annotations

from queue import SimpleQueue

from onthedot import App, IntervalSchedule

app = App("heartbeat", store="memory://")
beats: SimpleQueue[str] = SimpleQueue()


@app.task(schedule=IntervalSchedule(interval=0.2))
def beat() -> None:
    beats.put("beat")


if __name__ == "__main__":
    app.start(auto=True, threading=True)
    for number in range(3):
        print(f"the program goes on: {number}")
        print(beats.get())
    app.shutdown()
