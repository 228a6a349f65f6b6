"""AddBatcher: adds during a write go with the next one; a cancelled add does not affect others."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence

import pytest

from onthedot.client.add_batcher import AddBatcher
from onthedot.clock.manual import ManualClock
from onthedot.errors import ArgumentError, StoreBusy, StoreError, StoreFull, StoreUnavailable
from onthedot.stores.contract import Added, DeadlinePassed, NewTask, StoreTraits
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

    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        self.began.append("".join(task.uuid for task in tasks))
        await self.open.wait()
        if any(task.body == b"full" for task in tasks):
            raise StoreFull("no room")
        if any(task.body == b"odd" for task in tasks):
            raise TypeError("odd")
        added = await super().add(tasks, deadline)
        if any(task.body == b"lost" for task in tasks):
            raise StoreUnavailable("no reply")
        if any(task.body == b"unsent" for task in tasks):
            raise StoreUnavailable("not connected", stored=False)
        return added


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


async def failed_add(adder: AddBatcher, *tasks: NewTask) -> StoreError:
    with pytest.raises(StoreError) as raised:
        await adder.add(tasks)
    return raised.value


@pytest.mark.parametrize(
    ("body", "stored", "message"),
    [
        (b"lost", None, r"no reply; task a may be stored or not: adding it again with options\(uuid='a'\) is safe"),
        (b"unsent", False, "not connected; task a was not stored and will not appear later: add it again"),
        (b"full", False, "no room"),
    ],
)
async def test_error_of_an_add_names_its_task_and_whether_it_is_stored(
    gated: Gated, body: bytes, stored: bool | None, message: str
) -> None:
    store = gated()
    store.open.set()
    with pytest.raises(StoreError, match=f"^{message}$") as raised:
        await add(AddBatcher(store), new("a", body))
    assert (raised.value.uuid, raised.value.uuids, raised.value.stored) == ("a", ("a",), stored)


async def test_each_caller_of_a_failed_write_gets_an_error_with_its_own_uuid(gated: Gated) -> None:
    store = gated()
    adder = AddBatcher(store)
    first = asyncio.create_task(adder.add([new("a")]))
    await until(lambda: store.began)
    calls = [[new("b", b"lost")], [new("c")], [new("d"), new("e")]]
    rest = [asyncio.create_task(failed_add(adder, *tasks)) for tasks in calls]
    await asyncio.sleep(0)
    store.open.set()
    await first
    errors = await asyncio.gather(*rest)
    assert store.began == ["a", "bcde"]
    assert [(error.uuid, error.uuids) for error in errors] == [("b", ("b",)), ("c", ("c",)), (None, ("d", "e"))]
    assert "task c may be stored or not" in str(errors[1])
    assert "2 tasks may be stored or not: adding each again with its uuid (error.uuids) is safe" in str(errors[2])


async def test_add_that_is_not_answered_in_time_may_be_stored_or_not(clock: ManualClock) -> None:
    error = await failed_add(AddBatcher(Gate(clock, cancel_safe=False), timeout=0.01), new("a"))
    assert (error.uuid, error.stored) == ("a", None)


async def test_later_parts_of_an_add_are_not_sent_after_an_error(gated: Gated) -> None:
    store = gated()
    store.open.set()
    tasks = [new(f"u{number}", b"lost" if number == 1500 else b"{}") for number in range(3500)]
    error = await failed_add(AddBatcher(store), *tasks)
    assert len(store.began) == 2
    assert error.uuids == tuple(task.uuid for task in tasks[1000:])
    assert (error.uuid, error.stored) == (None, None)


def test_error_of_another_call_names_no_task() -> None:
    assert [(error.uuid, error.uuids, error.stored) for error in (StoreUnavailable("x"), StoreBusy("x"))] == [
        (None, (), None),
        (None, (), False),
    ]
    assert str(StoreUnavailable("x")) == "x"


class Recording(MemoryStore):
    """A store that records the deadlines of its adds; `jump` is how far its clock is ahead of what it has reported."""

    traits = StoreTraits(shared=False, cancel_safe=True)

    def __init__(self, clock: ManualClock, jump: float = 0) -> None:
        super().__init__(clock)
        self.jump = jump
        self.deadlines: list[float | None] = []

    def earliest_now(self) -> float:
        return super().earliest_now() - self.jump

    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        self.deadlines.append(deadline)
        return await super().add(tasks, deadline)


@pytest.mark.parametrize("number", [1, 2])
async def test_add_carries_the_time_at_which_its_caller_gives_up(clock: ManualClock, number: int) -> None:
    store = Recording(clock)
    await AddBatcher(store, timeout=4).add([new(str(each)) for each in range(number)])
    assert store.deadlines == [clock.now() + 4000]


async def test_refused_add_is_repeated_once_by_the_time_of_the_store(clock: ManualClock) -> None:
    store = Recording(clock, jump=60_000)
    assert (await add(AddBatcher(store, timeout=4), new("a"))).fresh
    assert store.deadlines == [clock.now() - 56_000, pytest.approx(clock.now() + 4000, abs=1000)]
    assert (store.deadlines[-1] or 0) <= clock.now() + 4000, "the time that the refusal took is over"


class Refusing(Recording):
    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        self.deadlines.append(deadline)
        raise DeadlinePassed(self.earliest_now())


async def test_add_that_is_refused_twice_was_not_stored(clock: ManualClock) -> None:
    store = Refusing(clock)
    with pytest.raises(StoreUnavailable, match="not stored") as refused:
        await add(AddBatcher(store), new("a"))
    assert (refused.value.stored, refused.value.uuid, len(store.deadlines)) == (False, "a", 2)


async def test_reply_that_came_while_the_loop_was_blocked_counts(clock: ManualClock) -> None:
    store = Gate(clock, cancel_safe=False)
    adding = asyncio.create_task(add(AddBatcher(store, timeout=0.05), new("a")))
    await until(lambda: store.began)
    asyncio.get_running_loop().call_later(0.06, store.open.set)  # due together with the timeout
    time.sleep(0.1)  # noqa: ASYNC251 - it blocks the loop
    assert (await adding).fresh
