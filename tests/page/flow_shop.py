"""Flows, batches and durable tasks for the browser tests and the screenshots of their pages; `shop` has the others.

ONTHEDOT_STORE=sqlite:///shop.db onthedot worker tests/page/flow_shop.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from onthedot import App, BatchPolicy, Call, SizeTable, current_task, group
from tests.support.waits import until

app = App("studio")


def is_open(gate: str) -> bool:
    """gate: a file that a test makes, or "": always open."""
    return not gate or Path(gate).exists()


@app.task
async def extract(day: str) -> str:
    return day


@app.task
async def clean(day: str, part: int, gate: str = "") -> int:
    """While the gate is closed, every seventh part fails."""
    await asyncio.sleep(0.01)
    if part % 7 == 3 and not is_open(gate):
        raise ConnectionError(f"part {part} of {day} is not there")
    return part


@app.task
async def score(day: str) -> int:
    return len(day)


@app.task
async def merge(parts: list[int], score: int) -> int:
    return sum(parts) + score


@app.task(label="report of {day}")
async def report(total: int, day: str) -> str:
    return f"{total} parts on {day}"


@app.task
async def sweep(day: str) -> None: ...


def nightly(day: str, parts: int, gate: str = "") -> Call[str]:
    """Two branches after one task, which come together again."""
    first = extract.s(day)
    cleaned = group(clean.s(day, part, gate).after(first) for part in range(parts))
    scored = score.s(first.result)
    merged = merge.s(cleaned.result, scored.result)
    return report.s(merged.result, day).always(sweep.s(day))


policy = BatchPolicy(split=SizeTable({}, other=5))


@app.task(batch=policy, max_retries=1, backoff=0.05)
async def names(count: int, style: str, gate: str = "") -> list[dict[str, str]]:
    """While the gate is closed, no part but the first ends."""
    part = int(current_task().metadata["subtask_id"].rpartition(":")[2])
    if part > 0:
        await until(lambda: is_open(gate), timeout=600)
    if style == "broken" and part == 1:
        raise ConnectionError("the model does not answer")
    return [{"name": f"{style} {part}-{number}"} for number in range(count)]


@app.task(label="order {order} for {customer}")
async def approve(order: int, customer: str) -> object:
    return await current_task().wait_for("approved", timeout=86_400)


@app.task
async def tokens(prompt: str) -> AsyncIterator[str]:
    for word in prompt.split():
        yield word
