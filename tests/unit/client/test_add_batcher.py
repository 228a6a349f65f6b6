"""AddBatcher: adds during a write go with the next one; a cancelled add does not affect others."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence

import pytest

from onthedot.client.add_batcher import AddBatcher
from onthedot.clock.manual import ManualClock
from onthedot.errors import ArgumentError, StoreFull
from onthedot.stores.contract import Added, NewTask, StoreTraits
from onthedot.stores.memory import MemoryStore
from tests.support.waits import until

Gated = Callable[[], "Gate"]


class Gate(MemoryStore):
    """A store whose writes wait for `open`; it records which tasks were written together."""

    def __init__(self, clock: ManualClock, *, cancel_safe: bool) -> None:
        super().__init__(clock)
        self.traits = StoreTraits(shared=False, cancel_safe=cancel_safe)
        self.open = asyncio.Event()
        self.began: list[str] = []

    async def add(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        self.began.append("".join(task.uuid for task in tasks))
        await self.open.wait()
        if any(task.body == b"full" for task in tasks):
            raise StoreFull("no room")
        if any(task.body == b"odd" for task in tasks):
            raise TypeError("odd")
        return await super().add(tasks)


@pytest.fixture(params=[False, True], ids=["by a task", "direct"])
def gated(request: pytest.FixtureRequest, clock: ManualClock) -> Gated:
    return lambda: Gate(clock, cancel_safe=request.param)


def new(uuid: str, body: bytes = b"{}") -> NewTask:
    return NewTask(uuid, "a", body)


async def add(adder: AddBatcher, task: NewTask) -> Added:
    (added,) = await adder.add([task])
    return added


async def begun(adder: AddBatcher, store: Gate, *uuids: str) -> list[asyncio.Task[Added]]:
    """All have asked, and the first is being written."""
    adding = [asyncio.create_task(add(adder, new(uuid))) for uuid in uuids]
    await until(lambda: store.began)
    return adding


async def test_adds_during_a_write_go_with_the_next_write(gated: Gated) -> None:
    store = gated()
    adder = AddBatcher(store)
    first = await begun(adder, store, "a")
    rest = [asyncio.create_task(add(adder, new(uuid))) for uuid in "bcd"]
    await asyncio.sleep(0)
    store.open.set()
    assert [added.uuid for added in await asyncio.gather(*first, *rest)] == list("abcd")
    assert [added.fresh for added in await asyncio.gather(*(add(adder, new(uuid)) for uuid in "ef"))] == [True, True]
    assert (await add(adder, new("g"))).fresh
    assert store.began == ["a", "bcd", "ef", "g"], "who came together comes together again"


async def test_cancelled_add_does_not_cancel_others(gated: Gated) -> None:
    store = gated()
    adder = AddBatcher(store)
    (first,) = await begun(adder, store, "a")
    second, third = (asyncio.create_task(add(adder, new(uuid))) for uuid in "bc")
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()
    store.open.set()
    assert (await third).fresh
    assert [first.cancelled(), second.cancelled()] == [True, True]
    assert (await add(adder, new("d"))).fresh


@pytest.mark.parametrize(("body", "kind"), [(b"full", StoreFull), (b"odd", ArgumentError)])
async def test_only_the_caller_of_a_bad_task_gets_the_error(gated: Gated, body: bytes, kind: type[Exception]) -> None:
    store = gated()
    store.open.set()
    adder = AddBatcher(store)
    with pytest.raises(kind, match=r"no room|cannot take it: TypeError: odd"):
        await add(adder, new("a", body))
    results = await asyncio.gather(
        add(adder, new("b")), add(adder, new("c", b"odd")), add(adder, new("d")), return_exceptions=True
    )
    assert [type(each) for each in results] == [Added, ArgumentError, Added]


def test_loop_that_ends_during_a_write_leaves_nothing(gated: Gated) -> None:
    wrong: list[object] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
        store = gated()
        adding.extend(await begun(AddBatcher(store), store, *"abc"))

    adding: list[asyncio.Task[Added]] = []
    asyncio.run(work())
    assert [task.cancelled() for task in adding] == [True] * 3
    adding.clear()
    gc.collect()
    assert wrong == []
