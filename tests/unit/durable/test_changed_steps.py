"""Code that was changed while a task waited: each change is harmless, or one clear error before any effect."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from onthedot import App, TaskContext, TaskFailed, current_task
from onthedot.api.handles import TaskHandle
from onthedot.testing import TestApp

Body = Callable[[TaskContext], Awaitable[Any]]


class Deploy:
    """A task whose code is exchanged while it waits for the signal "go"."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.calls: list[str] = []
        self.body: Body = self.before

        @self.app.task(max_retries=3, backoff=0)
        async def order() -> Any:
            return await self.body(current_task())

        self.order = order

    async def step(self, ctx: TaskContext, name: str) -> str:
        return await ctx.step(name, self.make, name)

    def make(self, name: str) -> str:
        self.calls.append(name)
        return f"result of {name}"

    async def before(self, ctx: TaskContext) -> Any:
        """The code of the first run: charge, log, then the wait, then ship."""
        await self.step(ctx, "charge")
        await self.step(ctx, "log")
        await ctx.wait_for("go")
        return await self.step(ctx, "ship")

    def replace(self, test: TestApp, after: Body) -> TaskHandle[Any]:
        """Runs the code up to the wait, then the new one."""
        handle = self.order.delay()
        test.sync.run_until_idle()
        assert (handle.state(), self.calls) == ("waiting", ["charge", "log"])
        self.body = after
        handle.signal("go")
        test.sync.run_until_idle()
        return handle


@pytest.fixture
def deploy() -> Deploy:
    return Deploy()


def failure(handle: TaskHandle[Any]) -> str:
    with pytest.raises(TaskFailed) as raised:
        handle.result()
    assert raised.value.error_type == "onthedot.StepChanged"
    assert raised.value.attempt == 1, "it is not retried"
    return raised.value.message


def test_renamed_step_is_an_error_until_it_is_declared(deploy: Deploy) -> None:
    async def after(ctx: TaskContext) -> Any:
        paid = await deploy.step(ctx, "pay")
        await deploy.step(ctx, "log")
        await ctx.wait_for("go")
        return [paid, await deploy.step(ctx, "ship")]

    async def declared(ctx: TaskContext) -> Any:
        ctx.changed(renamed={"charge": "pay"})
        return await after(ctx)

    with TestApp(deploy.app) as test:
        handle = deploy.replace(test, after)
        text = failure(handle)
        assert "step 'pay#1' is reached, but 'charge#1'" in text
        for remedy in ("renamed={'charge': 'pay'}", "added={'pay'}", "removed={'charge'}"):
            assert remedy in text
        deploy.body = declared
        assert handle.retry()
        test.sync.run_until_idle()
        assert handle.result() == ["result of charge", "result of ship"]
    assert deploy.calls == ["charge", "log", "ship"], "no effect is repeated"


def test_inserted_step_is_an_error_until_it_is_declared(deploy: Deploy) -> None:
    async def after(ctx: TaskContext) -> Any:
        await deploy.step(ctx, "charge")
        await deploy.step(ctx, "audit")
        await deploy.step(ctx, "log")
        await ctx.wait_for("go")
        await ctx.sleep(10)
        return await deploy.step(ctx, "ship")

    async def declared(ctx: TaskContext) -> Any:
        ctx.changed(added={"audit"})
        return await after(ctx)

    with TestApp(deploy.app) as test:
        handle = deploy.replace(test, after)
        assert "step 'audit#1' is reached, but 'log#1'" in failure(handle)
        deploy.body = declared
        handle.retry()
        test.sync.advance(10)
        assert handle.result() == "result of ship"
    assert deploy.calls == ["charge", "log", "audit", "ship"]


def test_removed_step_is_an_error_until_it_is_declared(deploy: Deploy) -> None:
    async def after(ctx: TaskContext) -> Any:
        await deploy.step(ctx, "charge")
        await ctx.wait_for("go")
        return await deploy.step(ctx, "ship")

    async def declared(ctx: TaskContext) -> Any:
        ctx.changed(removed={"log"})
        return await after(ctx)

    with TestApp(deploy.app) as test:
        handle = deploy.replace(test, after)
        assert "'log#1'" in failure(handle)
        deploy.body = declared
        handle.retry()
        test.sync.run_until_idle()
        assert handle.result() == "result of ship"
    assert deploy.calls == ["charge", "log", "ship"]


def test_removed_wait_is_declared_by_its_engine_name(deploy: Deploy) -> None:
    async def after(ctx: TaskContext) -> Any:
        await deploy.step(ctx, "charge")
        await deploy.step(ctx, "log")
        return await deploy.step(ctx, "ship")

    async def declared(ctx: TaskContext) -> Any:
        ctx.changed(removed={"#wait:go"})
        return await after(ctx)

    with TestApp(deploy.app) as test:
        handle = deploy.replace(test, after)
        assert "removed={'#wait:go'}" in failure(handle)
        deploy.body = declared
        handle.retry()
        test.sync.run_until_idle()
        assert handle.result() == "result of ship"


def test_reordered_saved_steps_are_found_by_name(deploy: Deploy) -> None:
    async def after(ctx: TaskContext) -> Any:
        found = [await deploy.step(ctx, "log"), await deploy.step(ctx, "charge")]
        await ctx.wait_for("go")
        return [*found, await deploy.step(ctx, "ship")]

    with TestApp(deploy.app) as test:
        handle = deploy.replace(test, after)
        assert handle.result() == ["result of log", "result of charge", "result of ship"]
    assert deploy.calls == ["charge", "log", "ship"]


def test_appended_steps_need_nothing(deploy: Deploy) -> None:
    async def after(ctx: TaskContext) -> Any:
        await deploy.before(ctx)
        await deploy.step(ctx, "mail")
        return await deploy.step(ctx, "archive")

    with TestApp(deploy.app) as test:
        handle = deploy.replace(test, after)
        assert handle.result() == "result of archive"
    assert deploy.calls == ["charge", "log", "ship", "mail", "archive"]


@dataclass
class Receipt:
    number: int


def as_number(_: str) -> int:
    raise AssertionError("it is saved, so it must not run")


def as_receipt(_: str) -> Receipt:
    raise AssertionError("it is saved, so it must not run")


@pytest.mark.parametrize(("function", "name"), [(as_number, "int"), (as_receipt, "Receipt")])
def test_result_that_the_new_type_cannot_read_is_an_error(
    deploy: Deploy, function: Callable[[str], Any], name: str
) -> None:
    async def after(ctx: TaskContext) -> Any:
        return await ctx.step("charge", function, "charge")

    with TestApp(deploy.app) as test:
        text = failure(deploy.replace(test, after))
        assert "step 'charge#1' was saved as str and cannot be read as" in text
        assert name in text
        assert "$" in text, "the path"


def test_result_of_a_class_needs_its_annotation(deploy: Deploy) -> None:
    def receipt() -> Receipt:
        return Receipt(7)

    async def before(ctx: TaskContext) -> Any:
        await ctx.step("charge", receipt)
        await ctx.wait_for("go")

    async def after(ctx: TaskContext) -> Any:
        return await ctx.step("charge", lambda: receipt())

    deploy.body = before
    with TestApp(deploy.app) as test:
        handle = deploy.order.delay()
        test.sync.run_until_idle()
        deploy.body = after
        handle.signal("go")
        test.sync.run_until_idle()
        assert "nothing declares that type any more" in failure(handle)


def test_saved_steps_that_were_not_requested_are_logged(deploy: Deploy, caplog: pytest.LogCaptureFixture) -> None:
    async def after(ctx: TaskContext) -> Any:
        return await deploy.step(ctx, "charge")

    with TestApp(deploy.app) as test, caplog.at_level(logging.WARNING, "onthedot.task"):
        deploy.replace(test, after).result()
    assert [record.getMessage().partition("not use: ")[2] for record in caplog.records] == ["#until:go#1, log#1"]


def test_changes_are_declared_before_the_first_step(deploy: Deploy) -> None:
    async def late(ctx: TaskContext) -> Any:
        await deploy.step(ctx, "charge")
        with pytest.raises(RuntimeError, match="before the first step"):
            ctx.changed(added={"audit"})
        return "refused"

    deploy.body = late
    with TestApp(deploy.app) as test:
        handle = deploy.order.delay()
        test.sync.run_until_idle()
        assert handle.result() == "refused"


class Flaky:
    """The first call raises; later ones return."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "charged"


@pytest.mark.parametrize("branch", ["other step", "fewer steps", "other error"])
def test_caught_error_does_not_look_like_changed_code(deploy: Deploy, branch: str) -> None:
    """The step that raised runs again after a wait. Its other result leads to other steps, in the same code."""
    flaky = Flaky(ValueError("no card"), *([KeyError("card")] if branch == "other error" else []))

    async def body(ctx: TaskContext) -> Any:
        try:
            await ctx.step("charge", flaky)
        except ValueError:
            if branch != "fewer steps":
                await deploy.step(ctx, "log")
                await deploy.step(ctx, "remind")
        except KeyError:
            await deploy.step(ctx, "ask")
        else:
            await deploy.step(ctx, "thank")
        await deploy.step(ctx, "pack")
        await ctx.wait_for("go")
        await deploy.step(ctx, "ship")
        await ctx.sleep(1)
        return await deploy.step(ctx, "end")

    deploy.body = body
    with TestApp(deploy.app) as test:
        handle = deploy.order.delay()
        test.sync.run_until_idle()
        handle.signal("go")
        test.sync.drain()
        assert handle.result() == "result of end"
    assert len(deploy.calls) == len(set(deploy.calls)), "nothing saved is repeated"


def test_changed_code_after_a_caught_error_is_an_error(deploy: Deploy) -> None:
    """The step raises again, so the saved steps that followed it are expected."""
    flaky = Flaky(*(ValueError("no card") for _ in range(5)))

    async def with_error(ctx: TaskContext, name: str) -> Any:
        with pytest.raises(ValueError, match="no card"):
            await ctx.step("charge", flaky)
        await deploy.step(ctx, name)
        await ctx.wait_for("go")
        return await deploy.step(ctx, "ship")

    deploy.body = lambda ctx: with_error(ctx, "log")
    with TestApp(deploy.app) as test:
        handle = deploy.order.delay()
        test.sync.run_until_idle()
        deploy.body = lambda ctx: with_error(ctx, "write")
        handle.signal("go")
        test.sync.run_until_idle()
        assert "step 'write#1' is reached, but 'log#1'" in failure(handle)
    assert deploy.calls == ["log"]


def test_steps_after_a_caught_error_are_not_reported_as_left(deploy: Deploy, caplog: pytest.LogCaptureFixture) -> None:
    flaky = Flaky(ValueError("no card"))

    async def body(ctx: TaskContext) -> Any:
        try:
            await ctx.step("charge", flaky)
        except ValueError:
            await deploy.step(ctx, "remind")
            await ctx.wait_for("go")
        return "done"

    deploy.body = body
    with TestApp(deploy.app) as test, caplog.at_level(logging.WARNING, "onthedot.task"):
        handle = deploy.order.delay()
        test.sync.run_until_idle()
        handle.signal("go")
        test.sync.run_until_idle()
        assert handle.result() == "done"
    assert caplog.messages == []
