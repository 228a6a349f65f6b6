"""Log lines of failures: the cause once, by its public name, with a traceback that begins in the user's code."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from onthedot import App, Retry
from onthedot.observability.log_format import ConsoleFormatter, JsonFormatter
from tests.support.programs import tasks
from tests.support.waits import SOON, until

FRAME = '  File "'


class Log:
    """The lines about failures, as `onthedot worker` writes them."""

    def __init__(self) -> None:
        self.console = self._handler(ConsoleFormatter(colours=False))
        self.json = self._handler(JsonFormatter())

    def _handler(self, formatter: logging.Formatter) -> logging.StreamHandler[io.StringIO]:
        handler = logging.StreamHandler(io.StringIO())
        handler.setFormatter(formatter)
        handler.setLevel(logging.WARNING)
        return handler

    @property
    def text(self) -> str:
        return self.console.stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.json.stream.getvalue().splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    logger = logging.getLogger("onthedot.task")
    for handler in (log.console, log.json):
        logger.addHandler(handler)
    yield log
    for handler in (log.console, log.json):
        logger.removeHandler(handler)


def charge(card: str) -> None:
    raise ValueError(f"no card {card}")


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_traceback_in_the_log_begins_at_the_users_frame(app: App[Any], log: Log, kind: str) -> None:
    if kind == "async":

        @app.task
        async def pay() -> None:
            charge("17")
    else:

        @app.task(name="pay")
        def pay() -> None:
            charge("17")

    async with app.running():
        handle = await pay.enqueue()
        await handle.exception()
    first, *more = log.text.splitlines()
    assert first.endswith(f"[fail] task {handle.uuid} from pay: no card 17 (ValueError)")
    assert more[0] == "  Traceback (most recent call last):"
    assert more[1].startswith(f'  {FRAME}{__file__}", line ')
    assert more[1].endswith(", in pay")
    assert more[-1] == "  ValueError: no card 17"
    assert "onthedot/" not in log.text
    (line,) = log.lines
    assert line["traceback"].splitlines()[1] == more[1].removeprefix("  ")


async def test_traceback_of_a_process_begins_at_the_users_frame(log: Log) -> None:
    async with tasks.app.running():
        handle = await tasks.raises.enqueue("other")
        await handle.exception(SOON)
    first, *more = log.text.splitlines()
    assert first.endswith(f"[fail] task {handle.uuid} from raises: not mine (ValueError)")
    assert more[0] == "  Traceback (most recent call last):"
    assert more[1].startswith(f'  {FRAME}{tasks.__file__}", line ')
    assert more[-1] == "  ValueError: not mine"
    assert log.text.count("Traceback") == 1
    assert "onthedot/" not in log.text
    assert "RemoteError" not in log.text
    (line,) = log.lines
    assert line["traceback"].startswith("Traceback")


async def test_timeout_is_logged_once(app: App[Any], clock: Any, log: Log) -> None:
    began = asyncio.Event()

    @app.task(timeout=1.5)
    async def stubborn() -> None:
        began.set()
        await asyncio.Event().wait()

    async with app.running():
        handle = await stubborn.enqueue()
        await began.wait()
        clock.advance(1500)
        error = await handle.exception()
        info = await handle.info()
    expected = f"[fail] task {handle.uuid} from stubborn: no result after 1.5 s (onthedot.TaskTimeout)\n"
    assert log.text.partition(" ERROR   ")[2] == expected
    assert str(error) == f"task {handle.uuid} failed: onthedot.TaskTimeout: no result after 1.5 s"
    assert not hasattr(error, "__notes__"), "there is no traceback to add"
    assert info.error is not None
    assert (info.error.type, info.error.traceback) == ("onthedot.TaskTimeout", "")


async def test_raised_retry_shows_its_reason(app: App[Any], clock: Any, log: Log) -> None:
    """In the log, as the error of the task, and in the groups of failed tasks."""

    @app.task(max_retries=1)
    async def hook(url: str) -> None:
        raise Retry(after=1, reason=f"{url} is closed")

    @app.task(max_retries=0)
    async def wrapped() -> None:
        try:
            raise ConnectionError("refused")
        except ConnectionError as error:
            raise Retry(after=1) from error

    async with app.running():
        handle = await hook.enqueue("bank")

        async def is_retried() -> bool:
            return (await handle.info()).retries == 1

        await until(is_retried)
        assert "(1/1): onthedot.Retry: bank is closed" in log.text
        clock.advance(1000)
        await handle.exception()
        other = await wrapped.enqueue()
        await other.exception()
        infos = [await handle.info(), await other.info()]
        groups = await app.operations.failures()
    messages = ["bank is closed", "ConnectionError: refused"]
    assert [info.error and (info.error.type, info.error.message) for info in infos] == [
        ("onthedot.Retry", message) for message in messages
    ]
    assert {(group.source, group.type, group.message) for group in groups} == {
        ("hook", "onthedot.Retry", messages[0]), ("wrapped", "onthedot.Retry", messages[1]),
    }  # fmt: skip
    assert "onthedot.errors" not in log.text
    assert [line["error_type"] for line in log.lines if line["level"] == "ERROR"] == ["onthedot.Retry"] * 2


async def test_three_retries_are_counted_in_the_log(app: App[Any], clock: Any, log: Log) -> None:
    @app.task
    async def again() -> None:
        raise Retry(after=1)

    async with app.running():
        handle = await again.enqueue()

        async def has_waited(retries: int) -> bool:
            return (await handle.info()).retries == retries

        for retries in (1, 2, 3):
            await until(lambda retries=retries: has_waited(retries))
            clock.advance(1000)
        await handle.exception()
    assert [f"({count}/3): onthedot.Retry" in log.text for count in (1, 2, 3)] == [True] * 3
    assert log.text.count("[retry]") == 3
