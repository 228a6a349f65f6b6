"""Changed code on each store: the journal of the store shows each change, and no effect is repeated."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App, TaskFailed, current_task
from tests.support.waits import SOON, until
from tests.unit.durable.stores import on_each_store

BEFORE = ["charge", "log", "wait", "ship"]
AFTER: dict[str, tuple[list[str], str]] = {  # the steps of the new code, and its message if it is refused
    "renamed": (["pay", "log", "wait", "ship"], "step 'pay#1' is reached, but 'charge#1'"),
    "inserted": (["charge", "audit", "log", "wait", "ship"], "step 'audit#1' is reached, but 'log#1'"),
    "removed": (["charge", "wait", "ship"], "'log#1'"),
    "changed type": (["charge as number", "log", "wait", "ship"], "step 'charge#1' was saved as str"),
    "reordered": (["log", "charge", "wait", "ship"], ""),
    "appended": ([*BEFORE, "mail"], ""),
}


@on_each_store
@pytest.mark.parametrize("change", AFTER)
async def test_changed_code_is_one_clear_error_or_none(app: App, change: str) -> None:
    code = [BEFORE]
    calls: list[str] = []

    def make(name: str) -> str:
        calls.append(name)
        return f"result of {name}"

    def make_number(name: str) -> int:
        raise AssertionError(f"{name} is saved, so it must not run")

    @app.task(max_retries=3, backoff=0)
    async def order() -> str:
        for name in code[0]:
            if name == "wait":
                await current_task().wait_for("go")
            elif name == "charge as number":
                await current_task().step("charge", make_number, "charge")
            else:
                await current_task().step(name, make, name)
        return "shipped"

    code_after, message = AFTER[change]
    async with app.running():
        handle = await order.enqueue()
        await until(lambda: _waits(handle))
        assert calls == ["charge", "log"]
        code[0] = code_after
        await handle.signal("go")
        if message:
            with pytest.raises(TaskFailed) as raised:
                await handle.result(SOON)
            assert (raised.value.error_type, raised.value.attempt) == ("onthedot.StepChanged", 1)
            assert message in raised.value.message
            assert calls == ["charge", "log"], "before any effect"
        else:
            assert await handle.result(SOON) == "shipped"
            assert calls == ["charge", "log", *(name for name in code_after if name in ("ship", "mail"))]


async def _waits(handle: Any) -> bool:
    return bool(await handle.state() == "waiting")
