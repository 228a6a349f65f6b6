"""`on_failed` makes the effects of every end as failed, of runs and of chores."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from onthedot import App, Cancel
from onthedot.engine.config import WorkerConfig
from onthedot.engine.worker import Worker
from onthedot.model.failures import decode_failure
from onthedot.stores.contract import ClaimRequest, Effects, Ended, NewTask, Policy, Record, SlotPool
from tests.support.waits import SOON, until

ECHO = "echo"
BAD_ARGUMENTS = b'{"args":{"number":"many"}}'


class Factory:
    """Adds a task for each failed one, whose body is the message of the error."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Ended]] = []
        self.error: Exception | None = None

    def __call__(self, record: Record, ended: Ended) -> Effects:
        self.calls.append((record.source, ended))
        if self.error is not None:
            raise self.error
        if record.source == ECHO:
            return Effects()
        failure = decode_failure(ended.error)
        assert failure is not None
        body = msgspec.json.encode({"args": {"text": failure.message}})
        return Effects((NewTask(f"{record.uuid[:-4]}ffff", ECHO, body),))


class Shop:
    """An app whose workers have `on_failed`."""

    def __init__(self, url: str) -> None:
        self.app = App("shop", store=url, stop_timeout=0, poll_interval=0.05)
        self.factory = Factory()
        self.echoed: list[str] = []

        def new_worker(config: WorkerConfig, **collaborators: Any) -> Worker:
            return Worker(replace(config, on_failed=self.factory), **collaborators)

        self.app.runtime.use(replace(self.app.runtime.config, worker_factory=new_worker))

        @self.app.task(name=ECHO)
        async def echo(text: str) -> None:
            self.echoed.append(text)

    async def echoes(self, text: str) -> None:
        await until(lambda: self.echoed)
        assert self.echoed == [text]
        assert len(self.factory.calls) == 1


@pytest.fixture
def shop(store_url: str) -> Iterator[Shop]:
    shop = Shop(store_url)
    yield shop
    shop.app.shutdown()


async def test_failed_run_has_the_effects(shop: Shop) -> None:
    @shop.app.task(max_retries=1, backoff=[0])
    async def broken() -> None:
        raise ValueError("no such order")

    async with shop.app.running():
        handle = await broken.enqueue()
        await shop.echoes("no such order")
        info = await handle.info()
    assert (info.state, info.attempt) == ("failed", 2)


async def test_abandoned_thread_has_the_effects(shop: Shop) -> None:
    may_return = threading.Event()

    @shop.app.task(timeout=0.05)
    def stubborn() -> None:
        may_return.wait(SOON)

    try:
        async with shop.app.running():
            await stubborn.enqueue()
            await shop.echoes("no result after 0.05 s")
            may_return.set()
    finally:
        may_return.set()


async def test_undecodable_arguments_have_the_effects(shop: Shop) -> None:
    @shop.app.task
    async def count(number: int) -> None: ...

    async with shop.app.running():
        await shop.app.runtime.store.add([NewTask("019b0000-0000-7000-8000-000000000002", "count", BAD_ARGUMENTS)])
        await until(lambda: shop.echoed)
    assert "number" in shop.echoed[0]


async def crash(app: App, source: str) -> None:
    """A session dies over a task that has no other chance."""
    store = app.runtime.store
    await store.open()
    task = NewTask("019b0000-0000-7000-8000-000000000002", source, b"{}", policy=Policy(max_crashes=1))
    await store.add([task])
    await store.heartbeat("victim", b"{}", 60_000)
    turn = await store.turn("victim", (), ClaimRequest(1, [SlotPool(1, {source: 1})]))
    assert turn.claim is not None
    assert [record.uuid for record in turn.claim.tasks] == [task.uuid]
    await store.close_session("victim", crashed=True)
    await store.close()


async def test_crashed_task_has_the_effects_in_a_worker_without_its_code(shop: Shop) -> None:
    await crash(shop.app, "elsewhere")
    async with shop.app.running():
        await shop.echoes("its worker died 1 times over it")
    assert shop.factory.calls[0][0] == "elsewhere"


async def test_expired_task_has_the_effects(shop: Shop) -> None:
    @shop.app.task(concurrency=1)
    async def slow() -> None: ...

    await shop.app.operations.pause("slow", reason="test")
    async with shop.app.running():
        handle = await slow.options(expires=0.01).enqueue()
        await shop.echoes("expired")
        assert (await handle.info()).state == "cancelled"


async def test_cancelled_task_has_none(shop: Shop) -> None:
    @shop.app.task
    async def cancelled() -> None:
        raise Cancel("not wanted")

    async with shop.app.running():
        handle = await cancelled.enqueue()
        later = await cancelled.options(after=1000).enqueue()
        await later.cancel()
        for each in (handle, later):
            await until(lambda each=each: _is_cancelled(each))
    assert shop.factory.calls == []


async def _is_cancelled(handle: Any) -> bool:
    return (await handle.info()).state == "cancelled"


async def test_factory_that_raises_does_not_keep_the_task_from_ending(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    @shop.app.task
    async def broken() -> None:
        raise ValueError("no such order")

    shop.factory.error = RuntimeError("a bug")
    async with shop.app.running():
        handle = await broken.enqueue()
        await until(lambda: handle.info())
        await until(lambda: _has_failed(handle))
        info = await handle.info()
    assert info.error is not None
    assert info.error.message == "no such order"
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert f"[fail] task {handle.uuid} (broken) ends without the effects of its failure: a bug" in lines


async def _has_failed(handle: Any) -> bool:
    return (await handle.info()).state == "failed"
