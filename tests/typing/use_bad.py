"""Each marked line is an error for mypy --strict and for pyright (tests/typing counts them)."""

from __future__ import annotations

from onthedot import App

app = App("x")


@app.task
async def send(to: str, body: str = "") -> int:
    return 1


@app.schedule(schedule="@daily")
def tick() -> None: ...


send.delay(1)  # E wrong type
send.delay()  # E missing
send.delay("a", bdy="x")  # E unknown keyword
send.options(prio=3)  # E unknown option
tick.delay()  # E a schedule has no delay


async def main() -> None:
    await send.delay("a")  # E not awaitable: use enqueue
    send.enqueue("a")  # E never awaited
