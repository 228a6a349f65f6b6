"""Names known from other task systems: the error says what to write here, and the advice is true."""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
import warnings
from functools import partial
from typing import Any

import pytest

from onthedot import App, ArgumentError, DeclarationError, TaskHandle
from onthedot.api.schedules import ScheduleOptions
from onthedot.model import familiar_names as names
from onthedot.model.options import AddOptions, TaskOptions
from tests.support.waits import SOON

PARAMETERS = ("name", "schedule")


def declare(app: App[Any], **options: Any) -> Any:
    async def another() -> None: ...

    return app.task(**options)(another)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": 5}, r"task 'another' \(.*\): no option 'time_limit'; it is timeout=… here$"),
        ({"autoretry_for": (OSError,)}, "no option 'autoretry_for'; it is retry_on=… here$"),
        ({"bind": True}, r"no option 'bind'; leave it out: current_task\(\) returns the running task$"),
        ({"queue": "mail"}, r"no option 'queue'; a source has no other queue: `onthedot worker --only"),
        ({"task_name": "x"}, "no option 'task_name'; it is name=… here$"),
        ({"trigger": "cron"}, "no option 'trigger'; it is schedule=… here$"),
        ({"max_tries": 3}, "no option 'max_tries'; it is max_retries=… here$"),
        ({"result_ttl": 3}, "no option 'result_ttl'; it is keep_result=… here$"),
        ({"countdown": 3}, r"no option 'countdown'; it is an option of one call: \.options\(after=…\)\.delay\(…\)$"),
        ({"after": 3}, r"no option 'after'; it is an option of one call: \.options\(after=…\)\.delay\(…\)$"),
        ({"misfire_grace_time": 3}, r"a schedule has grace=…, as in CronSchedule\('0 3 \* \* \*', grace=60\)$"),
        ({"max_retry": 3}, r"no option 'max_retry'; did you mean 'max_retries'\?$"),
        ({"zzz": 3}, r"no option 'zzz'; there are: backoff, .* and 13 more$"),
    ],
)
def test_option_of_a_task_known_elsewhere_names_ours(app: App[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declare(app, **options)


ALL = "after, at, connection, expires, label, metadata, priority, tags, unique, uuid"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"countdown": 5}, r"send\.options\(\): no option 'countdown'; it is after=… here$"),
        ({"eta": 5}, "no option 'eta'; it is at=… here$"),
        ({"_defer_until": 5}, "no option '_defer_until'; it is at=… here$"),
        ({"expires_in": 5}, "no option 'expires_in'; it is expires=… here$"),
        ({"task_id": "x"}, "no option 'task_id'; it is uuid=… here$"),
        ({"queue": "x"}, "no option 'queue'; a source has no other queue"),
        ({"link": "x"}, r"no option 'link'; current_task\(\)\.spawn\(next\.s\(…\)\) adds"),
        ({"zzz": 5}, f"no option 'zzz'; there are: {ALL}$"),
        ({"time_limit": 5}, rf"there are: {ALL}; timeout=… is an option of the task: @app\.task\(timeout=…\)$"),
        (
            {"max_retries": 5},
            rf"there are: {ALL}; max_retries=… is an option of the task: @app\.task\(max_retr",
        ),
    ],
)
def test_option_of_a_call_known_elsewhere_names_ours(send: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        send.options(**options)


def test_options_that_are_advised_exist() -> None:
    known = {*TaskOptions.__annotations__, *AddOptions.__annotations__}
    assert set(names.OPTIONS.values()) <= {*known, *PARAMETERS}
    assert not (names.OPTIONS.keys() | names.ADVICE.keys()) & known
    assert not names.OPTIONS.keys() & names.ADVICE.keys()
    known = {"tz", *ScheduleOptions.__annotations__}
    assert not names.SCHEDULE.keys() & known
    assert set(re.findall(r"it is (\w+)=", " ".join(names.SCHEDULE.values()))) <= known


async def test_attribute_known_elsewhere_names_ours(app: App[Any], send: Any) -> None:
    @app.schedule("@daily")
    async def tick() -> None: ...

    handles = [send.delay("ann"), await send.enqueue("ann")]
    for owner, familiar in (
        (send, names.FUNCTION), (send.options(after=1), names.FUNCTION), (app.named("x"), names.FUNCTION),
        (tick, names.SCHEDULED), (handles[0], names.HANDLE), (handles[1], names.HANDLE), (app, names.APP),
    ):  # fmt: skip
        for name, advice in familiar.items():
            assert not hasattr(owner, name), "it is no name of ours"
            with pytest.raises(AttributeError, match=re.escape(f"has no attribute {name!r}; {advice}")):
                getattr(owner, name)
        with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
            owner.nonsense  # noqa: B018 - it raises
    with pytest.raises(AttributeError, match=r"'TaskHandle' has no attribute 'get'; write handle\.result\(timeout=…\)"):
        handles[0].get(timeout=SOON)
    with pytest.raises(AttributeError, match=r"'TaskFunction' has no attribute 'apply_async'; write f\.delay\(…\)"):
        send.apply_async(("ann",), countdown=5)


def test_attributes_that_are_advised_exist(app: App[Any], send: Any) -> None:
    handle = send.delay("ann")
    owners = {"f": send, "handle": handle, "app": app}
    for familiar in (names.FUNCTION, names.SCHEDULED, names.HANDLE, names.APP):
        for advice in familiar.values():
            for owner, name in re.findall(r"\b(f|handle|app)\.(\w+)\(", advice):
                assert callable(getattr(owners[owner], name)), advice


def test_handles_and_functions_can_be_copied(send: Any) -> None:
    """Copying asks for attributes of an object that has none yet."""
    handle = send.delay("ann")
    assert isinstance(copy.copy(handle), TaskHandle)
    assert copy.copy(handle).uuid == handle.uuid
    assert copy.copy(send).name == "send"


def test_frameworks_see_an_async_function_as_one(app: App[Any], send: Any) -> None:
    @app.task
    def plain() -> None: ...

    @app.schedule("@daily")
    async def tick() -> None: ...

    for function in (send, tick, partial(send, "ann")):
        assert inspect.iscoroutinefunction(function)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.14 on; frameworks still call it
            assert asyncio.iscoroutinefunction(function)
    assert not inspect.iscoroutinefunction(plain)
    assert not inspect.iscoroutinefunction(send.options(after=1))
    assert str(inspect.signature(send)) == "(to: 'str', body: 'str' = 'hello') -> 'str'"
    assert inspect.unwrap(send).__name__ == send.__name__ == "send"
