"""An app whose data is a corpus of texts that would be markup or script on a careless page.

ONTHEDOT_STORE=sqlite:///shop.db onthedot worker tests/page/corpus_shop.py
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from onthedot import App, AtMost, current_task
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
async def fail(texts: list[str], by_key: dict[str, str]) -> None:
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
    await current_task().wait_for(name)


async def fill() -> list[str]:
    """Returns the tasks whose pages show the whole corpus."""
    await refuse_events()
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
        await app.signal(f"kept {NAMES[0]}", {text: text})
    store: Any = app.runtime.store
    for number, text in enumerate(TEXTS):
        info = {"host": text, "pid": number, "release": text, "version": text, "sources": [text], "app": "corpus"}
        await store.heartbeat(f"worker-{number}", msgspec.json.encode(info), 600_000)
    return [handle.uuid for handle in (failing, *others, waiting[0], held)]


async def refuse_events() -> None:
    """Events that the bus refuses, with an error of markup."""
    await app.publish(*[
        Event("Corpus.Text.Added", {text: text}, aggregate_id=str(number), headers={"x-text": text})
        for number, text in enumerate(PARTS[0])
    ])  # fmt: skip
    store: Any = app.runtime.store
    await store.heartbeat("refusing", b"{}", 10_000)
    result = await store.relay("refusing", (), {}, RelayRequest())
    await store.relay("refusing", (), {each.seq: PARTS[0][each.seq % PART] for each in result.events}, None)
    await store.close_session("refusing")
