"""``onthedot flow``: list, show, cancel and retry flows."""

from __future__ import annotations

import re

import pytest

from onthedot import App, Call, FlowHandle, TaskFailed, TaskFailure, current_task, group
from tests.support.waits import SOON, wait_until
from tests.unit.cli.conftest import Console


class Shop:
    """A flow whose member fails until it is repaired."""

    def __init__(self, console: Console) -> None:
        self.app = console.app
        self.broken = True

        @self.app.task
        async def price(item: int) -> int:
            if item == 2 and self.broken:
                raise ValueError("no price")
            return item * 10

        @self.app.task
        async def total(prices: list[int]) -> int:
            return sum(prices)

        self.price = price
        self.total = total
        self.flow = group(price.s(item) for item in range(4)) | total

    def flow_calls(self, *items: int) -> list[Call[int]]:
        return [self.price.s(item) for item in items]

    def failed(self, done: int = 5) -> FlowHandle[int]:
        handle = self.flow.delay()
        with self.app.background():
            with pytest.raises(TaskFailed):
                handle.result(timeout=SOON)
            wait_until(lambda: handle.progress().done == done)
        return handle


def test_flows_are_listed_and_shown(console: Console) -> None:
    shop = Shop(console)
    failed = shop.failed()
    waiting = shop.flow.delay()
    listed = {flow["uuid"]: flow for flow in console.json("flow", "list")["flows"]}
    assert (listed[failed.uuid]["state"], listed[waiting.uuid]["state"]) == ("failed", "waiting")
    assert listed[failed.uuid]["progress"] == {"done": 5, "failed": 2, "total": 5}
    assert [flow["uuid"] for flow in console.json("flow", "list", "--state", "failed")["flows"]] == [failed.uuid]
    listing = console.do("flow", "list")
    assert listing.split()[:6] == ["ID", "STATE", "LAST", "TASK", "ENDED", "FAILED"]
    assert "5 of 5" in listing
    shown = console.do("flow", "show", failed.uuid, "--tasks")
    assert "progress   5 of 5 ended, 2 of them without success\n" in shown
    assert "1 cancelled, 1 failed, 3 succeeded" in shown
    assert "failed: ValueError: no price" in shown
    assert shown.count("price") >= 4
    assert f"retry:  onthedot flow retry {failed.uuid[-10:]}" in shown
    text = console.do("flow", "show", waiting.uuid)
    assert "it waits for 4 of 4 tasks of flow" in text
    assert ": no worker is alive; start one: onthedot worker" in text
    assert "progress   0 of 5 ended\n" in text
    assert "retry:" not in text
    shown = console.json("task", "show", waiting.uuid)
    assert (shown["flow"], shown["waits"][:26]) == (waiting.uuid, "it waits for 4 of 4 tasks ")
    member = waiting.tasks(state="ready").tasks[0].uuid
    assert f"flow      {waiting.uuid}" in console.do("task", "show", member)
    plain = console.json("task", "show", console.add("greet", name="ann"))
    assert (plain["flow"], plain["waits"]) == (None, "")


def test_missing_flow_is_called_a_flow(console: Console) -> None:
    console.add("greet", name="ann")
    for command in ("show", "cancel", "retry"):
        result = console.invoke("flow", command, "nope", code=1)
        assert result.stderr == "onthedot: no flow nope: never added here, or no longer kept\n"
    assert console.invoke("flow", "list").stderr == (
        "there are no flows; onthedot flow show ID of a task shows what it has run as children\n"
    )


def test_flow_is_cancelled_and_retried(console: Console) -> None:
    shop = Shop(console)
    waiting = shop.flow.delay()
    assert "cancelled 5 tasks" in console.do("flow", "cancel", waiting.uuid)
    failed = shop.failed()
    shop.broken = False
    assert "retried 2 tasks" in console.do("flow", "retry", failed.uuid)
    with shop.app.background():
        assert failed.result(timeout=SOON) == 60


def test_flow_retry_without_a_failure_says_so(console: Console) -> None:
    shop = Shop(console)
    handle = shop.flow.delay()
    assert console.do("flow", "retry", handle.uuid) == (
        "nothing to retry: no task of it has failed, its state is waiting\n"
    )
    shop.broken = False
    with shop.app.background():
        handle.result(timeout=SOON)
    answer = console.do("flow", "retry", handle.uuid)
    assert answer == (
        "nothing to retry: no task of it has failed; its last task has succeeded, and does not run again\n"
    )


def test_task_retry_of_a_member_continues_the_flow_or_names_flow_retry(console: Console) -> None:
    shop = Shop(console)
    one = shop.failed()
    result = console.invoke("task", "retry", "--source", "price", "--state", "failed", "--yes")
    assert (result.stdout, result.stderr) == ("retried 1 of 1\n", "")
    assert console.state(one.uuid) == "waiting"
    shop.broken = False
    with shop.app.background():
        assert one.result(timeout=SOON) == 60
    shop.broken = True
    shop.flow = group([*shop.flow_calls(2), *shop.flow_calls(2)]) | shop.total
    two = shop.failed(done=3)
    (first, _) = two.tasks(state="failed")
    result = console.invoke("task", "retry", first.uuid)
    short = two.uuid[-10:]
    assert result.stderr == f"flow {short}: 1 other task has not succeeded: onthedot flow retry {short}\n"
    assert console.state(two.uuid) == "cancelled"
    shop.broken = False
    console.do("flow", "retry", two.uuid)
    with shop.app.background():
        assert two.result(timeout=SOON) == 40


def test_flow_that_was_stopped_by_a_failure_is_listed_as_failed(console: Console) -> None:
    shop = Shop(console)
    later = shop.app.named("price").options(after=3600)
    calls = [*shop.flow_calls(2), later.s(item=1)]
    stopped = (group(calls, on_error="stop") | shop.total).delay()
    with shop.app.background():
        wait_until(stopped.done)
    cancelled = shop.flow.delay()
    cancelled.cancel()
    assert console.state(stopped.uuid) == console.state(cancelled.uuid) == "cancelled"
    assert [flow["uuid"] for flow in console.json("flow", "list", "--state", "failed")["flows"]] == [stopped.uuid]
    assert [flow["uuid"] for flow in console.json("flow", "list", "--state", "cancelled")["flows"]] == [cancelled.uuid]


class Report:
    """A flow with chains in a group, a task that waits for a signal, handlers, and a task that spawns others."""

    def __init__(self, app: App) -> None:
        @app.task
        async def extract(region: int) -> int:
            return region

        @app.task
        async def clean(region: int) -> int:
            return region

        @app.task
        async def approve(region: int) -> int:
            for number in range(3):
                current_task().spawn(clean.s(number))
            await current_task().wait_for("approved")
            return region

        @app.task
        async def merge(regions: list[int], approved: int) -> int:
            return sum(regions)

        @app.task
        async def mail(total: int) -> int:
            return total

        @app.task
        async def alert(failure: TaskFailure) -> None: ...

        @app.task
        async def drop() -> None: ...

        first = extract.s(0)
        regions = group(first | clean.s(number) | clean for number in range(4))
        merged = merge.s(regions.result, approve.s(first.result).result)
        self.call: Call[int] = (merged | mail).on_failure(alert).always(drop.s())


def tree(shown: str) -> list[str]:
    """The lines of the tree, without uuids."""
    return re.sub(r" [0-9a-f]{10}\b", "", shown).split("\n\n")[1].splitlines()


def test_flow_show_prints_a_tree(console: Console) -> None:
    handle = Report(console.app).call.delay()
    assert tree(console.do("flow", "show", handle.uuid)) == [
        "mail waiting",
        "└─ merge waiting",
        "   ├─ approve waiting",
        "   │  └─ extract ready",
        "   └─ clean × 4: 4 waiting",
        "      └─ clean × 4: 4 waiting",
        "         └─ extract ready (see above)",
        "on_failure: alert waiting",
        "always: drop waiting",
    ]
    with console.app.background():
        wait_until(lambda: handle.progress().done == 9)
        wait_until(lambda: "waiting_signal" in console.do("task", "explain", handle.uuid))
        shown = console.do("flow", "show", handle.uuid)
        assert 'it waits for the signal "approved"' in shown
        assert tree(shown)[4:6] == ["   └─ clean × 4: 4 succeeded", "      └─ clean × 4: 4 succeeded"]
        console.app.sync.signal("approved")
        handle.result(timeout=SOON)
        wait_until(lambda: tree(console.do("flow", "show", handle.uuid))[-1] == "spawned: clean × 3: 3 succeeded")
    lines = tree(console.do("flow", "show", handle.uuid))
    assert lines[-2:] == ["always: drop succeeded", "spawned: clean × 3: 3 succeeded"]
    stages = console.json("flow", "show", handle.uuid)["flow"]["stages"]
    assert [(stage["source"], stage["count"], stage["after"]) for stage in stages] == [
        ("extract", 1, []),
        ("clean", 4, [0]),
        ("approve", 1, [0]),
        ("clean", 4, [1]),
        ("merge", 1, [2, 3]),
        ("mail", 1, [4]),
    ]


def test_flow_show_shortens_a_long_chain(console: Console) -> None:
    @console.app.task
    async def same(number: int) -> int:
        return number

    call: Call[int] = same.s(1)
    for _ in range(99):
        call = call | same
    lines = tree(console.do("flow", "show", call.delay().uuid))
    assert len(lines) < 30
    assert re.fullmatch(r" +└─ … [0-9]+ more tasks: --tasks lists them, --json has all stages", lines[-1])


def test_children_of_a_task_are_shown_explained_and_cancelled_with_it(console: Console) -> None:
    @console.app.task
    async def resize(number: int) -> int:
        await current_task().wait_for("go")
        return number

    @console.app.task
    async def add_up(numbers: list[int]) -> int:
        return sum(numbers)

    @console.app.task
    async def album(number: int) -> int:
        return await current_task().run(group(resize.s(each) for each in range(number)) | add_up)

    @console.app.task
    async def mail(total: int) -> int:
        return total

    handle = (album.s(3) | mail).delay()
    with console.app.background():
        wait_until(lambda: len(console.app.sync.find(source="resize", state="waiting")) == 3)
    shown = console.do("flow", "show", handle.uuid)
    assert tree(shown) == ["mail waiting", "└─ album waiting", "   └─ runs add_up waiting"]
    found = console.json("task", "explain", handle.uuid)
    assert [each["reason"] for each in found["also"]] == ["waiting_tasks", "waiting_tasks", "waiting_signal"]
    assert ": it waits for its child add_up " in found["also"][0]["text"]
    assert "it waits for 3 of 3 tasks of flow" in found["also"][1]["text"]
    assert console.json("flow", "cancel", handle.uuid)["cancelled"] == 6
    states = {info.source: info.state.value for info in console.app.sync.find()}
    del states["onthedot.stop"]
    assert set(states.values()) == {"cancelled"}
