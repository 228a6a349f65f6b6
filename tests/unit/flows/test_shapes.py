"""Chains, groups and graphs: every shape gives the right result by the same path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from onthedot import App, TaskState, current_task, group
from onthedot.flows.graph import build_graph, results_in
from tests.support.waits import SOON


@dataclass
class Point:
    x: int
    y: int


class Tasks:
    """The tasks of these tests, declared on one app."""

    def __init__(self, app: App) -> None:
        @app.task
        async def increment(number: int) -> int:
            return number + 1

        @app.task
        def total(numbers: list[int]) -> int:
            return sum(numbers)

        @app.task
        async def merge(left: int, right: int, *, note: str = "") -> str:
            return f"{left}/{right}{note}"

        @app.task
        async def names() -> None:
            return None

        self.increment = increment
        self.total = total
        self.merge = merge
        self.nothing = names


@pytest.fixture
def tasks(app: App) -> Tasks:
    return Tasks(app)


def test_chain_passes_each_result_on(app: App, tasks: Tasks) -> None:
    with app.background():
        handle = (tasks.increment.s(1) | tasks.increment | tasks.increment).delay()
        assert handle.result(timeout=SOON) == 4
        progress = handle.progress()
    assert (progress.done, progress.failed, progress.total) == (3, 0, 3)


async def test_turn_that_settles_a_link_of_a_chain_claims_the_next(app: App, tasks: Tasks) -> None:
    """The source of the next link is idle until then."""
    flow = tasks.increment.s(0)
    for _ in range(19):
        flow |= tasks.increment
    async with app.running():
        worker = app.runtime.worker
        assert worker is not None
        await (await tasks.increment.enqueue(0)).result(SOON)
        before = worker.turns
        assert await (await flow.enqueue()).result(SOON) == 20
        assert worker.turns - before <= 20 + 10, "some turns come from hints and the end"


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_group_of_any_size_passes_a_list_in_order(app: App, tasks: Tasks, count: int) -> None:
    @app.task
    async def reverse(numbers: list[int]) -> list[int]:
        return numbers[::-1]

    with app.background():
        flow = group(tasks.increment.s(number) for number in range(count)) | reverse
        assert flow.delay().result(timeout=SOON) == list(range(count, 0, -1))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_group_of_no_one_and_two_members_is_the_same_graph(app: App, tasks: Tasks, count: int) -> None:
    """No join is added and none is left out: the last task follows exactly the members, and keeps its argument."""
    members = group(tasks.increment.s(number) for number in range(count))
    last = members | tasks.total
    graph = build_graph(last, max_flow=10)
    assert [member.call for member in graph.members] == list(members.members)
    assert [(member.number, member.predecessors) for member in graph.members] == [(n, ()) for n in range(count)]
    assert (graph.last.call, graph.last.predecessors) == (last, tuple(range(count)))
    assert [result.call for result in results_in(graph.last.call)] == [members]
    assert (graph.joined, graph.handlers) == (frozenset(), [])
    assert not any(member.is_join or member.collects or member.stops for member in (*graph.members, graph.last))


def test_groups_nest(app: App, tasks: Tasks) -> None:
    @app.task
    async def sizes(rows: list[list[int]]) -> list[int]:
        return [len(row) for row in rows]

    with app.background():
        rows = group(group(tasks.increment.s(number) for number in range(size)) for size in (3, 0, 1))
        assert rows.delay().result(timeout=SOON) == [[1, 2, 3], [], [1]]
        again = group([group([tasks.increment.s(1), tasks.increment.s(2)]), group([tasks.increment.s(3)])])
        assert (again | sizes).delay().result(timeout=SOON) == [2, 1]


def test_tuple_group_keeps_the_types_of_its_members(app: App, tasks: Tasks) -> None:
    @app.task
    async def point() -> Point:
        return Point(1, 2)

    @app.task
    async def when() -> datetime:
        return datetime(2026, 11, 17, tzinfo=UTC)

    @app.task
    async def show(pair: tuple[Point, datetime]) -> str:
        return f"{pair[0].x} {pair[1].year}"

    with app.background():
        pair = group(point.s(), when.s())
        assert pair.delay().result(timeout=SOON) == (Point(1, 2), datetime(2026, 11, 17, tzinfo=UTC))
        assert (pair | show).delay().result(timeout=SOON) == "1 2026"
        assert app.flow((pair | show).delay().uuid).result(timeout=SOON) == "1 2026"


def test_one_to_a_thousand_to_one(app: App, tasks: Tasks) -> None:
    with app.background():
        flow = tasks.increment.s(0) | group(tasks.increment.s(number) for number in range(1000)) | tasks.total
        handle = flow.delay()
        assert handle.result(timeout=SOON) == 500_500
        assert handle.progress().total == 1002


def test_graph_runs_each_call_once(app: App, tasks: Tasks) -> None:
    runs: list[int] = []

    @app.task
    async def read(number: int) -> int:
        runs.append(number)
        return number

    with app.background():
        raw = read.s(1)
        left = tasks.increment.s(raw.result)
        right = tasks.increment.s(raw.result)
        assert tasks.merge.s(left.result, right.result, note="!").delay().result(timeout=SOON) == "2/2!"
    assert runs == [1]


def test_results_and_plain_values_share_a_list(app: App, tasks: Tasks) -> None:
    with app.background():
        numbers = [tasks.increment.s(1).result, 10, tasks.increment.s(2).result]
        assert tasks.total.s(numbers).delay().result(timeout=SOON) == 15


def test_results_are_variadic_arguments(app: App, tasks: Tasks) -> None:
    @app.task
    async def join(*numbers: int) -> str:
        return "-".join(map(str, numbers))

    with app.background():
        assert (
            join.s(tasks.increment.s(1).result, 7, tasks.increment.s(2).result).delay().result(timeout=SOON) == "2-7-3"
        )


@pytest.mark.parametrize("executor", ["async", "thread"])
def test_results_are_decoded_by_the_annotations_of_the_receiver(app: App, executor: str) -> None:
    @app.task
    async def point(x: int) -> Point | None:
        return Point(x, 0) if x else None

    async def read(points: Sequence[Point | None]) -> list[int | None]:
        return [point and point.x for point in points]

    def read_in_thread(points: Sequence[Point | None]) -> list[int | None]:
        return [point and point.x for point in points]

    receiver = app.task(name="read")(read if executor == "async" else read_in_thread)  # type: ignore[arg-type]
    with app.background():
        assert (group(point.s(x) for x in range(3)) | receiver).delay().result(timeout=SOON) == [None, 1, 2]


def test_bound_call_runs_after_the_other_without_its_result(app: App, tasks: Tasks) -> None:
    order: list[str] = []

    @app.task
    async def step(name: str) -> str:
        order.append(name)
        return name

    with app.background():
        chain = step.s("a") | (step.s("b") | step)
        assert chain.delay().result(timeout=SOON) == "b"
        assert (group(step.s(name) for name in "cd") | step.s("e")).delay().result(timeout=SOON) == "e"
        assert step.s("h").after(step.s("f"), group([step.s("g")])).delay().result(timeout=SOON) == "h"
    assert order[:3] == ["a", "b", "b"]
    assert sorted(order[3:5]) + order[5:6] == ["c", "d", "e"]
    assert sorted(order[6:8]) + order[8:] == ["f", "g", "h"]


def test_first_tasks_of_the_right_side_wait_for_the_left(app: App, tasks: Tasks) -> None:
    with app.background():
        raw = tasks.increment.s(1)
        left = tasks.increment.s(5)
        flow = left | tasks.merge.s(tasks.increment.s(raw.result).result, raw.result)
        handle = flow.delay()
        assert handle.result(timeout=SOON) == "3/2"
        ended = {info.args.get("number"): info for info in handle.tasks()}
        assert ended[1].started_at >= ended[5].ended_at  # type: ignore[operator]
        shared = raw | tasks.merge.s(raw.result, tasks.increment.s(raw.result).result)
        assert shared.delay().result(timeout=SOON) == "2/3"


def test_then_passes_further_arguments(app: App, tasks: Tasks) -> None:
    with app.background():
        assert tasks.increment.s(1).then(tasks.merge, 7, note="?").delay().result(timeout=SOON) == "2/7?"


def test_delay_of_a_member_counts_from_the_end_of_its_wait(app: App, tasks: Tasks) -> None:
    with app.background():
        handle = (tasks.increment.s(1) | tasks.increment.options(after=0.3)).delay()
        assert handle.result(timeout=SOON) == 3
        second, first = handle.tasks()
        assert (second.started_at - first.ended_at).total_seconds() >= 0.29  # type: ignore[operator]


def test_single_call_is_a_plain_task(app: App, tasks: Tasks) -> None:
    handle = tasks.increment.s(1).delay()
    record = app.runtime.portal.run_sync(lambda client: client.store.get([handle.uuid]))[0]
    assert record is not None
    assert record.links is None
    with app.background():
        assert handle.result(timeout=SOON) == 2
        assert handle.progress().total == 1


def test_same_uuid_again_leaves_the_first_flow_as_it_is(app: App, tasks: Tasks) -> None:
    first = (tasks.increment.s(1) | tasks.increment).delay(uuid="nightly")
    again = (group(tasks.increment.s(number) for number in range(5)) | tasks.total).delay(uuid="nightly")
    assert (first.added, again.added) == (True, False)
    with app.background():
        assert app.flow("nightly").result(timeout=SOON) == 3
        assert len(app.flow("nightly").tasks()) == 2


def test_spawned_flow_is_added_with_the_end_of_its_task(app: App, tasks: Tasks) -> None:
    @app.task
    async def fan_out(count: int) -> str:
        handle = current_task().spawn(group(tasks.increment.s(number) for number in range(count)) | tasks.total)
        return handle.uuid

    with app.background():
        uuid = fan_out.delay(4).result(timeout=SOON)
        assert app.flow(uuid).result(timeout=SOON) == 10


async def test_flow_is_awaited(app: App, tasks: Tasks) -> None:
    async with app.running():
        handle = await (group(tasks.increment.s(number) for number in range(3)) | tasks.total).enqueue()
        assert await handle == 6
        assert (await handle.progress()).done == 4
        assert {info.state for info in await handle.tasks()} == {TaskState.SUCCEEDED}
        assert await app.aflow(handle.uuid) == 6


def test_result_that_is_none_is_passed(app: App, tasks: Tasks) -> None:
    @app.task
    async def read(value: None) -> str:
        return repr(value)

    with app.background():
        assert (tasks.nothing.s() | read).delay().result(timeout=SOON) == "None"


def test_remote_task_takes_results_by_name(app: App, tasks: Tasks) -> None:
    with app.background():
        call = app.named("merge").s(left=tasks.increment.s(1).result, right=5)
        assert call.delay().result(timeout=SOON) == "2/5"


def test_numbers_of_a_level_follow_each_other() -> None:
    app = App("shop", store="memory://")
    tasks = Tasks(app)
    graph = build_graph(group(tasks.increment.s(number) | tasks.increment for number in range(3)) | tasks.total, 100)
    assert graph.last.predecessors == (3, 4, 5)


@pytest.mark.parametrize("is_async", [True, False])
def test_results_of_predecessors_are_read_page_by_page(app: App, tasks: Tasks, is_async: bool) -> None:
    async def read() -> int:
        return sum([result async for result in current_task().results()])

    def read_in_thread() -> int:
        return sum(current_task().sync.results())

    last = app.task(name="read")(read if is_async else read_in_thread)  # type: ignore[arg-type]
    with app.background():
        flow = last.s().after(group(tasks.increment.s(number) for number in range(1200)))
        assert flow.delay().result(timeout=SOON * 2) == sum(range(1, 1201))


def test_sync_form_of_results_is_named_where_the_async_one_is_used(app: App, tasks: Tasks) -> None:
    @app.task
    def read() -> str:
        try:
            current_task().results()
        except TypeError as error:
            return str(error)
        return ""

    with app.background():
        assert "write ctx.sync.results()" in read.s().after(tasks.increment.s(1)).delay().result(timeout=SOON)
