"""An app whose data is a corpus of texts that would be markup or script on a careless page.

ONTHEDOT_STORE=sqlite:///shop.db onthedot worker tests/page/corpus_shop.py
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from onthedot import App, AtMost, BatchPolicy, Reject, SizeTable, current_task, group
from onthedot.events import Event, Events
from onthedot.stores.contract import RelayRequest

TEXTS: list[str] = [
    json.loads(line) for line in Path(__file__).with_name("markup_corpus.jsonl").read_text("utf-8").splitlines()
]
PART = 50
PARTS = [TEXTS[start : start + PART] for start in range(0, len(TEXTS), PART)]
NAMES = [text for text in TEXTS if text.isprintable() and "#" not in text and len(text) <= 200]  # of signals
app = App("corpus", events=Events(results=("Corpus.Text.*",)))


class Attack(Exception):
    """Its text is the corpus."""


@app.task(max_retries=0)
async def fail(texts: list[str], by_key: dict[str, str]) -> str:
    raise Attack("\n".join(texts))


@app.task
async def answer(texts: list[str]) -> dict[str, str]:
    return {text: text for text in texts}


@app.task
async def stream(texts: list[str]) -> AsyncIterator[str]:
    for text in texts:
        yield text


@app.task(limits=[AtMost(1, by="customer")])
async def hold(customer: str) -> None: ...


@app.task
async def ask(name: str) -> None:
    """Texts are no numbers, so they stay kept."""
    await current_task().wait_for(name, type=int)


@app.task
async def describe_workers() -> None:
    """Sessions of the worker that runs this: they end with its process."""
    store: Any = app.runtime.store
    for number, text in enumerate(TEXTS):
        info = {"host": text, "pid": number, "release": text, "version": text, "sources": [text], "app": "corpus"}
        await store.heartbeat(f"worker-{number}", msgspec.json.encode(info), 600_000)


@app.task
async def gather(found: list[str]) -> None: ...


@app.task(batch=BatchPolicy(split=SizeTable({}, other=PART)), max_retries=0)
async def choose(count: int, texts: list[str]) -> list[dict[str, str]]:
    if current_task().metadata["subtask_id"].endswith(":1"):
        raise Attack("\n".join(texts))
    return [{text: text} for text in texts[:count]]


@app.agent("reader", consumes="Corpus.Text.Found")
async def read(event: Event[dict[str, str]]) -> None:
    raise Reject("\n".join(event.payload))


async def fill() -> list[str]:
    """Returns the tasks whose pages show the whole corpus, a flow and a batch."""
    await refuse_events()
    await app.publish(Event("Corpus.Text.Found", {text: text for text in TEXTS}, aggregate_id="read", id="read"))
    mapping = {text: text for text in TEXTS}
    failing = await fail.options(metadata=mapping, label=TEXTS[0]).enqueue(TEXTS, mapping)
    others = [await answer.enqueue(TEXTS), await stream.enqueue(TEXTS)]
    for number, part in enumerate(PARTS):
        for text in part:
            await fail.options(label=text, tags=[f"part{number}", text]).enqueue([text], {text: text})
    waiting = [await ask.enqueue(name) for name in NAMES[:PART]]
    await app.operations.pause("hold", reason="until it is seen")
    held = await hold.enqueue(TEXTS[0])
    for text in PARTS[0]:
        await app.operations.acting_as(text).pause("answered", reason=text)
        await app.signal(NAMES[0], {text: text})
    await name_schedules()
    flow = await (group(fail.s(part, {}) for part in PARTS) | gather.options(label=TEXTS[0])).enqueue()
    batch = await app.batch(choose, count=len(TEXTS), args={"texts": TEXTS})
    await describe_workers.enqueue()
    return [*(handle.uuid for handle in (failing, *others, waiting[0], held, flow)), batch.id]


async def name_schedules() -> None:
    """By the store: a client refuses such names."""
    await app.schedules.put("first", hold.s(TEXTS[0]), timedelta(days=1))
    await app.schedules.pause("first", TEXTS[0])
    store = app.runtime.store
    (first,) = await store.schedules()
    await store.put_schedules([msgspec.structs.replace(first, name=text, rev=0) for text in PARTS[0]])


async def refuse_events() -> None:
    """Events that the bus refuses, with an error of markup; the first one has the whole corpus."""
    headers = {f"x-{number}": text for number, text in enumerate(TEXTS)}
    await app.publish(Event("Corpus.Text.Added", headers, aggregate_id="all", id="all", headers=headers))
    await app.publish(*[
        Event("Corpus.Text.Added", {text: text}, aggregate_id=str(number), headers={"x-text": text})
        for number, text in enumerate(PARTS[0])
    ])  # fmt: skip
    store: Any = app.runtime.store
    await store.heartbeat("refusing", b"{}", 10_000)
    result = await store.relay("refusing", (), {}, RelayRequest())
    await store.relay("refusing", (), {each.seq: PARTS[0][each.seq % PART] for each in result.events}, None)
    await store.close_session("refusing")
