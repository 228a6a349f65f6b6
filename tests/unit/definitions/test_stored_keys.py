"""Unique keys, tags and lane keys that a store cannot keep are refused at the call; long ones are kept as a digest."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from random import Random
from typing import Any

import pytest

from onthedot import App, ArgumentError, AtMost, DeclarationError, TaskFailed, current_task
from tests.support.app_stores import AppStore
from tests.support.waits import SOON

SURROGATE = "scan-\udcff.pdf"  # a file name that is no UTF-8, as os.listdir returns it
NUL = "scan\0.pdf"
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unique, surrogate": ({"unique": SURROGATE}, "child: unique has a lone surrogate at 5"),
    "unique, NUL": ({"unique": NUL}, "child: unique has a NUL at 4"),
    "tags, surrogate": ({"tags": ["ok", SURROGATE]}, r"child.options\(\): tags has a lone surrogate at 5"),
    "tags, NUL": ({"tags": [NUL]}, r"child.options\(\): tags has a NUL at 4"),
    "label": ({"label": SURROGATE}, "label.*lone surrogate"),
    "metadata": ({"metadata": {"file": SURROGATE}}, "metadata.*lone surrogate"),
    "name of metadata": ({"metadata": {SURROGATE: 1}}, "metadata.*lone surrogate"),
}


def shop(store: AppStore) -> App[Any]:
    app: App[Any] = App(store.name, store=store.url, poll_interval=1)

    @app.task
    async def child(name: str = "") -> str:
        return name

    @app.task(limits=[AtMost(1, by="key")])
    async def laned(key: Any) -> None: ...

    return app


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD.keys())
async def test_option_that_cannot_be_stored_fails_only_its_own_call(
    app_store: AppStore, options: dict[str, Any], message: str
) -> None:
    app = shop(app_store)
    child = app.named("child")

    @app.task
    async def parent() -> None:
        current_task().spawn(child.options(**options).s(name="x"))

    async with app.running():
        with pytest.raises(ArgumentError, match=message):
            await child.options(**options).enqueue(name="x")
        error = await (await parent.enqueue()).exception(SOON)
        assert isinstance(error, TaskFailed)
        assert error.error_type == "onthedot.ArgumentError"
        other = await child.enqueue(name="y")
        assert await other.result(timeout=SOON) == "y"


@pytest.mark.parametrize("key", [b"scan-\xff.pdf", NUL, "é" * 8000], ids=["bytes", "NUL", "long"])
async def test_lane_key_of_any_text_or_bytes_is_stored(app_store: AppStore, key: Any) -> None:
    app = shop(app_store)
    async with app.running():
        task = await app.named("laned").enqueue(key=key)
        await task.result(SOON)
        assert len(((await task.info()).lane or "").encode()) <= 700


def random_key(size: int) -> str:
    """Incompressible text of so many bytes: a database cannot make its index row fit by compression."""
    return "".join(Random(size).choices([chr(code) for code in range(0x21, 0x7F)], k=size))


@pytest.mark.parametrize("size", [512, 513, 3000, 8000])
async def test_unique_key_of_any_length_is_stored_and_stays_unique(app_store: AppStore, size: int) -> None:
    app = shop(app_store)
    child = app.named("child")
    key = random_key(size)
    kept = key if size <= 512 else f"sha256:{sha256(key.encode()).hexdigest()}"

    @app.task
    async def parent() -> None:
        current_task().spawn(child.options(unique=key).s(name="spawned"))

    async with app.running():
        await app.pause("child")
        added = await child.options(unique=key).enqueue()
        again = await child.options(unique=key).enqueue()
        other = await child.options(unique=key[:-1] + " ").enqueue()
        assert (added.added, again.added, other.added) == (True, False, True)
        assert (await added.info()).unique == kept
        await (await parent.enqueue()).result(SOON)  # spawns nothing: the key is taken
        await app.schedules.put("often", child.options(unique=key).s(name="scheduled"), timedelta(hours=1))
        assert not (await app.schedules.run("often")).added
        assert len(await app.find(source="child")) == 2
        await app.cancel(added.uuid)
        await (await parent.enqueue()).result(SOON)
        assert len(await app.find(source="child", state="ready")) == 2
        await app.schedules.delete("often")


@pytest.mark.parametrize("size", [512, 513, 8000])
async def test_task_is_found_by_a_tag_of_any_length(app_store: AppStore, size: int) -> None:
    app = shop(app_store)
    tag = random_key(size)
    async with app:
        task = await app.named("child").options(tags=[tag]).enqueue()
        assert [found.uuid for found in await app.find(tag=tag)] == [task.uuid]
        assert len(await app.find(tag=tag[:-1] + " ")) == 0
        with pytest.raises(ArgumentError, match="tag has a lone surrogate"):
            await app.find(tag=SURROGATE)
        await app.cancel(task.uuid)


def test_tag_of_a_definition_is_checked_where_it_is_declared() -> None:
    app: App[Any] = App(store="memory://")
    with pytest.raises(DeclarationError, match=r"task 'send'.*tags has a NUL"):

        @app.task(name="send", tags=[NUL])
        def send() -> None: ...
