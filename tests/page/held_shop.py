"""Tasks that something holds back, for the tests of what the page of a task says about them.

ONTHEDOT_STORE=sqlite:///held.db onthedot worker tests/page/held_shop.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from onthedot import App, AtMost, Rate, StoreUnavailable, current_task, group
from tests.page.flow_shop import is_open

app = App("held")
MEMBERS = 1001
TEXT = "x" * (9 << 10)  # with it they are too large for one add: they are added in several, and a signal starts them
NAP = 15.0  # seconds; a page must be open before they are over


async def pass_gate(gate: str) -> None:
    while not is_open(gate):  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.02)


@app.task
async def make(number: int) -> int:
    return number


@app.task
async def pack(text: str) -> int:
    return len(text)


@app.task(concurrency=1)
async def build(gate: str = "") -> None:
    await pass_gate(gate)


@app.task(limits=[AtMost(1, by="customer")])
async def deliver(customer: str, gate: str = "") -> None:
    await pass_gate(gate)


@app.task(limits=[Rate("1/h", burst=1)])
async def report(number: int) -> int:
    return number


@app.task
async def approve() -> object:
    return await current_task().wait_for("approved")


@app.task
async def nap() -> None:
    await current_task().sleep(NAP)


@app.task
async def load(gate: str) -> int:
    await pass_gate(gate)
    return 1


@app.task
async def fail() -> int:
    raise ValueError("no order 17")


@app.task
async def total(found: list[int]) -> int:
    return sum(found)


# -- each adds a task that is held back, and returns its uuid


async def pause_source(gate: str) -> str:
    await app.operations.pause("make", reason="deploy")
    return (await make.enqueue(1)).uuid


async def pause_key(gate: str) -> str:
    await app.operations.pause("deliver", key="acme", reason="vendor down")
    return (await deliver.enqueue("acme")).uuid


async def fill_source(gate: str) -> str:
    await build.enqueue(gate)
    return (await build.enqueue()).uuid


async def fill_key(gate: str) -> str:
    await deliver.enqueue("globex", gate)
    return (await deliver.enqueue("globex")).uuid


async def use_up_rate(gate: str) -> str:
    await report.enqueue(1)
    return (await report.enqueue(2)).uuid


async def wait_for_signal(gate: str) -> str:
    return (await approve.enqueue()).uuid


async def sleep(gate: str) -> str:
    return (await nap.enqueue()).uuid


async def add_later(gate: str) -> str:
    return (await make.options(after=NAP).enqueue(1)).uuid


async def wait_for_task(gate: str) -> str:
    return (await (group([load.s(gate)]) | total).enqueue()).uuid


async def misspell(gate: str) -> str:
    return (await app.named("mak").enqueue(number=1)).uuid


async def add_unknown(gate: str) -> str:
    """Only `archive_shop` knows it."""
    return (await app.named("archive").enqueue(number=1)).uuid


async def run_until(gate: str) -> str:
    return (await load.enqueue(gate)).uuid


async def make_one(gate: str) -> str:
    return (await make.enqueue(1)).uuid


async def fail_before(gate: str) -> str:
    return (await (group([fail.s()]) | total).enqueue()).uuid


async def interrupt_flow(gate: str) -> str:
    """Its caller dies before it has sent the signal that starts the flow."""
    store: Any = app.runtime.store

    async def die(*_: object) -> None:
        raise StoreUnavailable("gone")

    store.signal = die
    try:
        await complete_flow()
    except StoreUnavailable:
        del store.signal
    page = await app.find(state="waiting", source="pack", limit=1)
    return page.tasks[0].uuid


async def complete_flow() -> None:
    """The same again completes it."""
    await group(pack.s(TEXT) for _ in range(MEMBERS)).enqueue(uuid="large")
