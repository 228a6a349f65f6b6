"""An app that traces to a file: ``traced.py NAME URL FILE add|work|both``. Its children write to the same file."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from onthedot import App, IntervalSchedule, current_task

NAME, URL, FILE, VERB = sys.argv[1:]
TASKS = 13  # that end, beside those of the schedule


class FileExporter(SpanExporter):
    """One JSON object per line; a line is written at once, so several processes can share the file."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(FILE).open("a", encoding="utf-8") as file:
            file.writelines([json.dumps(described(span)) + "\n" for span in spans])
        return SpanExportResult.SUCCESS


def described(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": f"{context.trace_id:032x}",
        "id": f"{context.span_id:016x}",
        "parent": None if span.parent is None else f"{span.parent.span_id:016x}",
        "links": [f"{link.context.span_id:016x}" for link in span.links],
        "attributes": dict(span.attributes or {}),
        "status": span.status.status_code.name,
        "events": [{"name": event.name, **(event.attributes or {})} for event in span.events],
    }


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")
app = App(NAME, store=URL)


@app.task
async def first(number: int) -> int:
    with tracer.start_as_current_span("inside first"):
        current_task().spawn(spawned.s(number))
    return number


@app.task
async def spawned(number: int) -> int:
    return number


@app.task
async def parent() -> int:
    return await current_task().run(child.s())


@app.task
async def child() -> int:
    return 1


@app.task
def in_thread() -> None:
    with tracer.start_as_current_span("inside thread"):
        pass


@app.task(executor="process")
def in_process() -> None:
    with tracer.start_as_current_span("inside process"):
        pass


@app.task(max_retries=1, backoff=0)
async def flaky() -> None:
    if current_task().attempt == 1:
        raise ValueError("the first time")


@app.task
async def doomed() -> None:
    raise RuntimeError("no answer of https://ann:hunter2@vendor.example")


@app.task
async def member(number: int) -> int:
    return number + 1


@app.task
async def many(number: int) -> None: ...


@app.task(schedule=IntervalSchedule(1))
async def tick() -> None: ...


def add_from_sync_code() -> None:
    with tracer.start_as_current_span("request"):
        first.delay(1)
    in_thread.delay()
    in_process.delay()
    many.delay_many([(1,), (2,), (3,)])


async def add() -> None:
    async with app:
        with tracer.start_as_current_span("async request"):
            await parent.enqueue()
        await flaky.enqueue()
        await doomed.enqueue()
        await (member.s(1) | member).enqueue()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)


async def work() -> None:
    async with app.running():
        await until(has_ended)


async def has_ended() -> bool:
    tally = await app.runtime.store.tally()
    ended = {source: 0 for source, _ in tally}
    for (source, state), count in tally.items():
        if state in ("succeeded", "failed"):
            ended[source] += count
    return ended.get("tick", 0) > 0 and sum(ended.values()) - ended["tick"] >= TASKS


async def both() -> None:
    async with app.running():
        await asyncio.to_thread(add_from_sync_code)
        await add()
        await until(has_ended)


if __name__ == "__main__":
    if VERB == "add":
        add_from_sync_code()
        asyncio.run(add())
    elif VERB == "work":
        asyncio.run(work())
    else:
        asyncio.run(both())
