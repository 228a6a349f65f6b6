"""Explanations of durable tasks on the stores that outlive their worker; each reason goes away with its cause.

A memory store ends its tasks with the worker: `test_explained_waits.py` has it, with a clock that is turned.
"""

from __future__ import annotations

import pytest

from onthedot import App, AsyncTaskHandle, current_task
from tests.support.waits import SOON, until


async def has_state(handle: AsyncTaskHandle[str], state: str) -> bool:
    return await handle.state() == state


@pytest.mark.parametrize("app_store", ["sqlite", "redis", "postgres"], indirect=True)
async def test_reasons_of_a_sleep_a_wait_and_a_wait_that_is_over(app: App) -> None:
    @app.task
    async def sleeper() -> str:
        await current_task().sleep(3600)
        return "slept"

    @app.task
    async def order() -> str:
        return await current_task().wait_for("paid", type=str)

    async with app:
        async with app.running():
            asleep = await sleeper.enqueue()
            waits = await order.enqueue()
            await until(lambda: has_state(asleep, "scheduled"))
            await until(lambda: has_state(waits, "waiting"))
            found = await app.explain(asleep.uuid)
            assert found.reason == "not_due"
            assert found.text.startswith("it sleeps until ")
            found = await app.explain(waits.uuid)
            assert (found.reason, found.state) == ("waiting_signal", "waiting")
            assert found.text.startswith('it waits for the signal "paid" since ')
            await asleep.cancel()
            await until(lambda: has_state(asleep, "cancelled"))
            assert (await app.explain(asleep.uuid)).reason == "ended"
        await waits.signal("paid", "yes")  # no worker is there to end the wait
        found = await app.explain(waits.uuid)
        assert (found.reason, [each.reason for each in found.also]) == ("waking", ["no_worker"])
        assert found.text == "its wait is over: a worker moves it to ready at its next turn"
        async with app.running():
            assert await waits.result(timeout=SOON) == "yes"
        assert (await app.explain(waits.uuid)).reason == "ended"
