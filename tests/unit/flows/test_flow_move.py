"""A move leaves the tasks of flows: the counters that they raise and wait for are in the store that they are in."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from onthedot import App, AsyncFlowHandle, current_task, group
from onthedot.cli import main
from onthedot.clock.manual import ManualClock
from onthedot.operations.move import Move
from onthedot.stores.memory import MemoryStore
from tests.support.app_stores import AppStore
from tests.support.waits import until, wait_until


class Tasks:
    def __init__(self, app: App) -> None:
        @app.task
        async def same(number: int) -> int:
            return number

        @app.task
        async def total(numbers: list[int]) -> int:
            return sum(numbers)

        @app.task
        async def sleeper(seconds: float) -> str:
            await current_task().sleep(seconds)
            return "awake"

        self.same = same
        self.total = total
        self.sleeper = sleeper


async def test_move_takes_plain_tasks_and_leaves_flows_and_durable_tasks(app: App, flow_store: AppStore) -> None:
    """Members that have not started are pending, as plain tasks are; what follows them waits."""
    if flow_store.url.startswith("memory"):
        pytest.skip("its tasks end with its worker")
    tasks = Tasks(app)
    async with app:
        async with app.running():
            durable = [await tasks.sleeper.enqueue(2) for _ in range(5)]
            await until(lambda: _are(durable, "scheduled"))
        flows: list[AsyncFlowHandle[int]] = []
        for number in range(3):
            members = [tasks.same.s(number), tasks.same.options(after=1).s(number)]
            flows.append(await (group(members) | tasks.total).enqueue())
        plain = await tasks.same.options(after=3600).enqueue_many([(number,) for number in range(100)])
        target = MemoryStore(ManualClock())
        result = await Move(app.runtime.store, target, "memory").run()
        assert result.tasks == len(plain)
        assert set(result.durable) == {handle.uuid for handle in durable}
        linked = {info.uuid for flow in flows for info in await flow.tasks()}
        assert len(linked) == 9
        assert set(result.linked) == linked
        async with app.running():
            assert [await flow for flow in flows] == [0, 2, 4]
            assert [await handle for handle in durable] == ["awake"] * 5


async def test_move_that_waits_returns_when_flows_and_durable_tasks_have_ended(app: App, flow_store: AppStore) -> None:
    if flow_store.url.startswith("memory"):
        pytest.skip("its tasks end with its worker")
    tasks = Tasks(app)
    async with app.running():
        durable = await tasks.sleeper.enqueue(2)
        await until(lambda: _are([durable], "scheduled"))  # before its first run it is a plain task, which is moved
        flow = await (tasks.same.options(after=1).s(4) | tasks.same).enqueue()
        result = await Move(app.runtime.store, MemoryStore(ManualClock()), "memory").run(wait=True)
        assert await durable.done()
        assert await flow.done()
        assert (await durable, await flow) == ("awake", 4)
    assert (result.tasks, result.durable, result.linked, result.running) == (0, [], [], 0)


async def _are(handles: list[object], state: str) -> bool:
    return {await handle.state() for handle in handles} == {state}  # type: ignore[attr-defined]


def test_command_names_the_tasks_that_stay(
    app: App, flow_store: AppStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not flow_store.url.startswith("sqlite"):
        pytest.skip("the text is the same for every store")
    tasks = Tasks(app)
    flow = (tasks.same.s(4) | tasks.same).delay()
    plain = tasks.same.options(after=3600).delay(1)
    target = f"sqlite:///{tmp_path_factory.mktemp('target')}/target.db"
    command = ["move", "--from", flow_store.url, "--to", target]
    result = CliRunner().invoke(main, command, prog_name="onthedot")
    assert result.exit_code == 0, result.output
    assert "moved 1 task, 0 schedules" in result.output
    assert "2 tasks of flows stay, to finish here (--wait waits): " in result.output
    assert flow.uuid in result.output
    assert plain.state() == "cancelled"
    with app.background():
        wait_until(flow.done)
        assert flow.result() == 4
