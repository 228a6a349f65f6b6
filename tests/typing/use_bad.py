"""Each marked line is an error for mypy --strict and for pyright (tests/typing counts them)."""

from __future__ import annotations

from onthedot import App, current_task

app = App("x")


@app.task
async def send(to: str, body: str = "") -> int:
    return 1


@app.task
def build() -> str:
    return ""


@app.schedule(schedule="@daily")
def tick() -> None: ...


send.delay(1)  # E wrong type
send.delay()  # E missing
send.delay("a", bdy="x")  # E unknown keyword
send.options(prio=3)  # E unknown option
tick.delay()  # E a schedule has no delay
send.s("a").delay("b")  # E a call has its arguments
send.delay_many(["a"])  # E neither a dict, a tuple nor a call
send.delay_many([build.s()])  # E a call of another result
app.delay_many([{"to": "a"}])  # E the app does not know of which function


@app.task
async def durable() -> None:
    ctx = current_task()
    await ctx.step("send", send, 1)  # E wrong type
    await ctx.step("send", send)  # E missing
    await ctx.step(send, "a")  # E no name
    await ctx.wait_any("paid", time=3)  # E unknown keyword
    ctx.sleep(3)  # E never awaited
    ctx.changed({"a": "b"})  # E a keyword


async def main() -> None:
    await send.delay("a")  # E not awaitable: use enqueue
    send.enqueue("a")  # E never awaited
