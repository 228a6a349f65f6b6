"""Stored arguments that the function does not take: the error names the parameter, and what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App, ArgumentError, TaskFailed
from onthedot.codec.body import Undecodable
from onthedot.stores.contract import NewTask


def declare(app: App[Any]) -> None:
    @app.task(name="add")
    async def add(x: int, y: list[int] = [], z: str = "") -> int:  # noqa: B006 - never changed
        return x


async def error_of(app: App[Any], **arguments: Any) -> TaskFailed:
    """By name, as from another process: the worker checks the arguments."""
    remote = App("shop", store="memory://")
    remote.runtime.use_store(app.runtime.store)
    async with app.running():
        handle = app.ahandle((await remote.named("add").enqueue(**arguments)).uuid)
        error = await handle.exception()
    assert isinstance(error, TaskFailed)
    return error


BEGIN = "add: the stored arguments cannot be read: "


@pytest.mark.parametrize(
    ("arguments", "problem", "name"),
    [
        ({"x": "21"}, "argument 'x': $.x is of type str where int is declared; ", "argument 'x'"),
        ({"x": 1, "y": [1, "2"]}, "argument 'y': $.y[1] is of type str where ", "argument 'y'"),
        ({"x": 1, "w": 2}, "unknown argument 'w'", "arguments"),
        ({"z": "a"}, "argument 'x' is missing", "arguments"),
    ],
)
async def test_argument_that_does_not_fit_is_named(
    app: App[Any], caplog: pytest.LogCaptureFixture, arguments: dict[str, Any], problem: str, name: str
) -> None:
    declare(app)
    error = await error_of(app, **arguments)
    assert error.error_type == "onthedot.ArgumentError"
    assert error.message.startswith(f"{BEGIN}{problem}")
    assert "$.open" not in error.message
    assert "{" not in error.message, "the stored bytes are no part of it"
    assert error.traceback == ""
    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    expected = f"its stored {name} cannot be read; `onthedot task show {error.task}` gives the reason"
    assert line == f"[fail] task {error.task} from add: {expected}"


@pytest.mark.parametrize(("text", "advised"), [("21", True), ("-7", True), ("2x", False), ("", False)])
async def test_number_that_came_as_text_gets_the_form_of_the_command_line(
    app: App[Any], text: str, advised: bool
) -> None:
    declare(app)
    error = await error_of(app, x=text)
    assert error.message.endswith(f"; from the command line write x:={text}") == advised


async def test_argument_stored_by_another_annotation_is_named(app: App[Any]) -> None:
    """The annotation has changed since the task was added."""
    declare(app)
    await app.runtime.store.add([NewTask("u1", "add", b'{"args":{"x":"21"}}')])
    async with app.running():
        error = await app.ahandle("u1").exception()
    assert isinstance(error, TaskFailed)
    assert error.message == f"{BEGIN}Expected `int`, got `str` - at `$.x`"


def test_error_of_unreadable_arguments_is_an_argument_error() -> None:
    assert issubclass(Undecodable, ArgumentError)
