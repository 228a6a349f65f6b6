"""``on_error="stop"``: a member that ends without success in any way stops the members that have not started."""

from __future__ import annotations

import asyncio
import time

import pytest

from onthedot import App, Call, TaskCancelled, TaskFailed, group
from onthedot.client.client import StoreClient
from onthedot.stores.contract import ClaimRequest, SlotPool
from tests.support.app_stores import AppStore
from tests.support.waits import LONG, SOON, wait_until

OTHERS = 5
PROMISED = 1.0  # seconds


async def _die_with_a_task(client: StoreClient, name: str) -> int:
    """A worker claims it and dies; how many it had."""
    await client.store.heartbeat(name, b'{"format": 2}', 60_000)
    turn = await client.store.turn(name, [], ClaimRequest(1, [SlotPool(1, {"poison": 1})], max_suspects=1))
    await client.store.close_session(name, crashed=True)
    return len(turn.claim.tasks) if turn.claim is not None else 0


@pytest.mark.parametrize("cause", ["expired", "crashed out", "unknown source"])
def test_member_that_never_succeeds_stops_the_flow(app: App, flow_store: AppStore, cause: str) -> None:
    if cause == "unknown source" and not flow_store.url.startswith("memory"):
        pytest.skip("in a store that is shared, another process may know the source")

    @app.task
    async def poison(number: int) -> int:
        return number

    @app.task
    async def count(numbers: list[int]) -> int:
        return len(numbers)

    bad: Call[int] = poison.options(expires=0.001).s(1) if cause == "expired" else poison.s(1)
    if cause == "unknown source":
        bad = app.named("elsewhere").s()
    calls = [bad, *(poison.options(after=3600).s(number) for number in range(OTHERS))]
    handle = (group(calls, on_error="stop") | count).delay()
    if cause == "expired":
        time.sleep(0.01)  # its time has passed before a worker exists
    if cause == "crashed out":
        for number in range(3):
            name = f"dead-{number}"
            assert app.runtime.portal.run_sync(lambda client, name=name: _die_with_a_task(client, name)) == 1
    with app.background():
        with pytest.raises((TaskFailed, TaskCancelled)):
            handle.result(timeout=SOON)
        wait_until(lambda: handle.progress().done == OTHERS + 2)
        infos = list(handle.tasks())
    stopped = [info for info in infos if info.source == "poison" and info.reason.startswith("stopped: ")]
    assert len(stopped) == OTHERS, [(info.source, info.state.value, info.reason) for info in infos]
    assert {info.state for info in infos if info.source == "count"} == {"cancelled"}
    assert {info.started_at for info in stopped} == {None}


@pytest.mark.timed
def test_members_that_have_not_started_are_cancelled_within_a_second(flow_store: AppStore) -> None:
    """One of eighty members fails. Half of the others are not due yet, and the rest has one slot."""
    app = App(flow_store.name, store=flow_store.url, concurrency=1, poll_interval=60, stop_timeout=0)

    @app.task
    async def fail() -> int:
        raise ValueError("no price")

    @app.task
    async def hang(number: int) -> int:
        await asyncio.sleep(LONG)
        return number

    @app.task
    async def count(numbers: list[int]) -> int:
        return len(numbers)

    later = [hang.options(after=3600).s(number) for number in range(39)]
    due = [hang.s(number) for number in range(40)]
    try:
        with app.background():
            handle = (group([fail.s(), *later, *due], on_error="stop") | count).delay()
            with pytest.raises(TaskFailed, match="no price"):
                handle.result(timeout=SOON)
            wait_until(lambda: len(app.sync.find(source="hang", state="cancelled")) >= len(later) + len(due) - 1)
            infos = list(handle.tasks())  # one page
    finally:
        app.shutdown()
    (failed_at,) = [info.ended_at for info in infos if info.source == "fail" and info.ended_at]
    stopped_at = [info.ended_at for info in infos if info.source == "hang" and not info.started_at and info.ended_at]
    assert len(stopped_at) >= len(later) + len(due) - 1
    took = (max(stopped_at) - failed_at).total_seconds()
    print(f"\n{flow_store.url.partition(':')[0]}: the last of {len(stopped_at)} {took * 1e3:.0f} ms after the failure")
    assert took < PROMISED
