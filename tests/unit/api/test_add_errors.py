"""The error of an add states which tasks it is about, and whether they are stored."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from onthedot import App, Scheduler, StoreFull, StoreUnavailable, Task
from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Added, NewTask, Record, StoreTraits
from onthedot.stores.memory import MemoryStore
from tests.support.services.ports import free_port

VERBS: dict[str, Callable[[App[Any], Any, Scheduler], Any]] = {
    "delay": lambda app, send, scheduler: send.options(uuid="u1").delay(),
    "enqueue": lambda app, send, scheduler: send.options(uuid="u1").enqueue(),
    "delay by name": lambda app, send, scheduler: app.named("else").options(uuid="u1").delay(),
    "enqueue by name": lambda app, send, scheduler: app.named("else").options(uuid="u1").enqueue(),
    "add_task": lambda app, send, scheduler: scheduler.add_task(Task("a", uuid="u1")),
    "add": lambda app, send, scheduler: scheduler.add(Task("a", uuid="u1")),
    "delay_many": lambda app, send, scheduler: send.delay_many([{}] * 3),
    "enqueue_many": lambda app, send, scheduler: send.enqueue_many([{}] * 3),
    "app.enqueue_many": lambda app, send, scheduler: app.enqueue_many([send.s()] * 3),
}


@pytest.mark.parametrize("verb", VERBS)
def test_add_that_was_never_sent_is_not_stored(verb: str) -> None:
    url = f"postgresql://127.0.0.1:{free_port()}/shop"
    app: App[Any] = App("shop", store=url)
    scheduler = Scheduler(store=url)

    @app.task
    def send() -> None: ...

    async def call() -> None:
        added = VERBS[verb](app, send, scheduler)
        if inspect.isawaitable(added):
            await added

    with pytest.raises(StoreUnavailable, match=r"not stored|none of 3 tasks was stored") as raised:
        asyncio.run(call())
    error = raised.value
    assert error.stored is False
    assert (error.uuid, len(error.uuids)) == ((None, 3) if "many" in verb else ("u1", 1))
    app.runtime.portal.close()
    scheduler.runtime.portal.close()


class LostReplies(MemoryStore):
    """Stores a task and loses the reply, as long as `broken`."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.traits = StoreTraits(shared=False)
        self.broken = True

    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        added = await super().add(tasks, deadline)
        if self.broken:
            raise StoreUnavailable("no reply")
        return added

    async def get(self, uuids: Sequence[str]) -> Sequence[Record | None]:
        raise StoreUnavailable("no reply")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> LostReplies:
    store = LostReplies()
    monkeypatch.setattr("onthedot.runtime.runtime.connect", lambda *_: store)
    return store


async def test_task_of_a_lost_reply_is_added_again_with_its_uuid(store: LostReplies) -> None:
    """The add is acknowledged, although its comparison with the stored task fails."""
    app: App[Any] = App("shop", store="memory://")

    @app.task
    async def send() -> None: ...

    async with app:
        with pytest.raises(StoreUnavailable) as raised:
            await send.enqueue()
        assert (raised.value.stored, isinstance(raised.value.uuid, str)) == (None, True)
        assert raised.value.uuid is not None
        store.broken = False
        again = await send.options(uuid=raised.value.uuid).enqueue()
        assert (again.uuid, again.added) == (raised.value.uuid, False)
        assert sum((await store.tally()).values()) == 1


def test_add_above_max_pending_is_not_stored() -> None:
    app: App[Any] = App("shop", store="memory://", max_pending=2)

    @app.task
    async def send() -> None: ...

    with pytest.raises(StoreFull) as raised:
        send.delay_many([{}] * 3)
    assert (len(raised.value.uuids), raised.value.stored) == (3, False)
