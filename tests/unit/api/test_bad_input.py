"""Bad input is refused at once, by an error that names the problem; earlier tasks are not lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from onthedot import (
    App,
    ArgumentError,
    AtMost,
    BadLimit,
    BadSchedule,
    BaseTaskConsumer,
    CronSchedule,
    DeclarationError,
    DuplicateTask,
    IntervalSchedule,
    OnTheDotError,
    Rate,
    Scheduler,
    SchedulerStateError,
    StoreRefused,
    Task,
    TaskNotFound,
    current_task,
)
from onthedot.executors.contract import Executor
from tests.support.waits import SOON, until, wait_until

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001
MANY = "x" * (1 << 20)


@pytest.fixture(autouse=True)
def nothing_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No thread, and no trouble of the loop that a second try has covered up."""
    before = threading.enumerate()
    yield
    assert [line for record in caplog.get_records("call") if "trying again" in (line := record.getMessage())] == []
    wait_until(lambda: not any(each.name.startswith("onthedot") for each in {*threading.enumerate()} - {*before}))


@asynccontextmanager
async def lifespan() -> AsyncIterator[str]:
    yield "database"


class Shop:
    """An app with a good task in it, which a test runs at the end."""

    def __init__(self) -> None:
        self.app: App[Any] = App("shop", store="memory://", lifespan=lifespan)
        self.ran: list[int] = []

        @self.app.task
        async def good(n: int) -> None:
            self.ran.append(n)

        @self.app.task
        async def send(to: str, body: str = "", *, copies: int = 1) -> None: ...

        @self.app.task
        async def loose(value) -> None: ...

        @self.app.task(limits=[Rate("10/s", by="to", burst=5, cost="weight")])
        async def weighed(to: str, weight: float = 1) -> None: ...

        @self.app.task(limits=[AtMost(1, by="key")])
        async def keyed(key: Any) -> None: ...

        self.good = good
        self.send = send
        self.loose = loose
        self.weighed = weighed
        self.keyed = keyed
        good.delay(1)

    def task(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Declares one more."""

        async def another(to: str = "", weight: float = 1) -> None: ...

        return self.app.task(**options)(function or another)

    def check(self) -> None:
        """The one that was there still runs, and so does the next."""
        self.good.delay(2)

        async def work() -> None:
            async with self.app.running():
                await until(lambda: len(self.ran) == 2)

        asyncio.run(work())
        assert self.ran == [1, 2]


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def sync_function(to: str = "") -> None: ...


Case = tuple[str, Callable[[Shop], object], type[Exception] | tuple[type[Exception], ...], str]

CALLS: list[Case] = [
    ("missing", lambda s: s.send.delay(), ArgumentError, r"send\(\): missing a required argument: 'to'"),
    ("too many", lambda s: s.send.delay("a", "b", 3), ArgumentError, "too many positional arguments"),
    ("unknown", lambda s: s.send.delay("a", copy=2), ArgumentError, r"'copy' \(did you mean 'copies'\?\)"),
    ("twice", lambda s: s.send.delay("a", to="b"), ArgumentError, "multiple values for argument 'to'"),
    ("wrong type", lambda s: s.send.delay(5), ArgumentError, r"argument 'to' .*\$\.to is of type int where str"),
    ("also in s()", lambda s: s.send.s(), ArgumentError, "missing a required argument: 'to'"),
    ("one of many", lambda s: s.send.delay_many([{"to": "a"}, {"at": "b"}]), ArgumentError, "send"),
    ("by name only", lambda s: s.app.named("elsewhere").delay("a"), ArgumentError, "pass its arguments by name"),
    ("unserialisable", lambda s: s.loose.delay(object()), ArgumentError, r"argument 'value'.*\$\.value .*object"),
    ("deep inside", lambda s: s.loose.delay({"a": [1, {2j}]}), ArgumentError, r"\$\.value\.a\[1\]"),
    ("a lock", lambda s: s.loose.delay({"l": threading.Lock()}), ArgumentError, r"\$\.value\.l .*lock"),
    ("oversized", lambda s: s.loose.delay(MANY), ArgumentError, "most in 'value'.*the limit is 1,048,576"),
    ("too deep", lambda s: s.loose.delay(nested(65)), ArgumentError, "65 levels deep.*the limit is 64"),
    ("itself", lambda s: s.loose.delay(endless()), ArgumentError, "contains itself"),
    ("surrogate", lambda s: s.send.delay("\ud800"), ArgumentError, "argument 'to'"),
    ("cost over burst", lambda s: s.weighed.delay("a", 6), BadLimit, "cost 6 is more than burst 5"),
    ("cost below 0", lambda s: s.weighed.delay("a", -1.0), BadLimit, "out of range"),
    ("cost nan", lambda s: s.weighed.delay("a", float("nan")), BadLimit, "out of range"),
    ("key", lambda s: s.keyed.delay([1]), BadLimit, "a list cannot be the key of a limit"),
    ("name", lambda s: s.app.named("no name!"), ValueError, "'no name!' is not a name"),
    ("no such task", lambda s: s.app.handle("nobody").state(), TaskNotFound, "no task nobody"),
    ("outside", lambda s: current_task(), RuntimeError, "outside of a running task"),
    ("state outside", lambda s: s.app.state, SchedulerStateError, r"lifespan\(\) has not been entered here"),
    ("process mode", lambda s: s.app.start(auto=True, threading=False), SchedulerStateError, "process"),
]  # fmt: skip

OPTIONS: list[tuple[dict[str, Any], type[Exception] | tuple[type[Exception], ...], str]] = [
    ({"at": NAIVE}, ArgumentError, "has no time zone"),
    ({"at": "2026-01-01T00:00:00+00:00"}, ArgumentError, r"at\b.*str"),
    ({"at": date(2026, 1, 1)}, ArgumentError, r"at\b.*date"),
    ({"at": datetime.now(UTC), "after": 5}, ArgumentError, "give one of them"),
    ({"after": -1}, ArgumentError, "after.*-1 is out of range"),
    ({"after": "5"}, ArgumentError, "after.*str"),
    ({"after": float("nan")}, ArgumentError, "after.*nan"),
    ({"after": timedelta(days=-1)}, ArgumentError, "after.*out of range"),
    ({"priority": 11}, ArgumentError, "priority must be 1 to 10"),
    ({"priority": 0}, ArgumentError, "priority must be 1 to 10"),
    ({"priority": "urgent"}, ArgumentError, "priority must be 1 to 10"),
    ({"priority": "5"}, ArgumentError, "priority must be 1 to 10"),
    ({"priority": True}, ArgumentError, "priority must be 1 to 10"),
    ({"tags": "eu"}, ArgumentError, "tags must be a list of strings"),
    ({"tags": [1]}, ArgumentError, "tags must be a list of strings"),
    ({"tags": [["eu"]]}, ArgumentError, "tags must be a list of strings"),
    ({"tags": 5}, ArgumentError, "tags must be a list of strings"),
    ({"expires": -1}, ArgumentError, "expires.*-1"),
    ({"expires": 0}, ArgumentError, "expires.*0"),
    ({"expires": "soon"}, ArgumentError, "expires.*str"),
    ({"unique": 5}, ArgumentError, "unique"),
    ({"label": 5}, ArgumentError, "label"),
    ({"metadata": 5}, ArgumentError, "metadata"),
    ({"metadata": {"x": object()}}, ArgumentError, r"metadata.*\$\.metadata\.x"),
    ({"metadata": {"x": MANY}}, ArgumentError, "the limit is 1,048,576"),
    ({"uuid": "two words"}, ArgumentError, "'two words' is not an id"),
    ({"uuid": 7}, ArgumentError, "7 is not an id"),
    ({"connection": object()}, StoreRefused, "memory:// and redis:// have no transaction to join"),
    ({"afterr": 5}, ArgumentError, "no option 'afterr'; did you mean 'after'?"),
    ({"max_retries": 5}, ArgumentError, "no option 'max_retries'; there are: after, at"),
]

DECLARED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"priority": 11}, DeclarationError, "priority must be 1 to 10"),
    ({"tags": "eu"}, DeclarationError, "tags must be a list of strings"),
    ({"max_retries": -1}, DeclarationError, "max_retries must be a whole number from 0"),
    ({"max_retries": 1.5}, DeclarationError, "max_retries must be a whole number"),
    ({"max_crashes": 0}, DeclarationError, "max_crashes must be a whole number from 1"),
    ({"timeout": 0}, DeclarationError, "timeout must be more than 0"),
    ({"timeout": "30"}, DeclarationError, "timeout: '30' is of type str"),
    ({"backoff": -5}, DeclarationError, "backoff"),
    ({"backoff": []}, DeclarationError, "backoff"),
    ({"retry_on": ("OSError",)}, DeclarationError, "retry_on must be a tuple of exception classes"),
    ({"reject_on": 5}, DeclarationError, "reject_on must be a tuple of exception classes"),
    ({"concurrency": 0}, DeclarationError, "concurrency must be a whole number from 1"),
    ({"rate_limit": "often"}, BadLimit, "'often' cannot be read"),
    ({"rate_limit": 5}, BadLimit, "5 cannot be read"),
    ({"limits": [AtMost(1, by="to"), Rate("1/s", by="weight")]}, BadLimit, "limits on two lanes"),
    ({"limits": ["10/s"]}, BadLimit, r"limits has '10/s'; it takes Rate\(…\) and AtMost\(…\)"),
    ({"limits": "10/s"}, DeclarationError, "limits"),
    ({"limits": 5}, DeclarationError, "limits"),
    ({"limits": [AtMost(1, by="whom")]}, BadLimit, "by='whom' is not a parameter"),
    ({"limits": [Rate("1/s", by="to", cost="whom")]}, BadLimit, "cost='whom' is not a parameter"),
    ({"unique": "{whom}"}, DeclarationError, "unique='{whom}' names 'whom', which is no parameter"),
    ({"unique": "{to"}, DeclarationError, "is not a template"),
    ({"unique": 5}, DeclarationError, "unique"),
    ({"label": "{whom}"}, DeclarationError, "label='{whom}' names 'whom'"),
    ({"label": 5}, DeclarationError, "label must be a string"),
    ({"on_conflict": "drop"}, DeclarationError, "on_conflict must be one of 'keep', 'replace', 'error'"),
    ({"on_conflict": ["keep"]}, DeclarationError, "on_conflict must be one of"),
    ({"expires": 0}, DeclarationError, "expires must be more than 0"),
    ({"keep": -1}, DeclarationError, "keep: -1 is out of range"),
    ({"executor": "thread"}, DeclarationError, "an async function runs on the event loop, not in a thread"),
    ({"executor": "nowhere"}, DeclarationError, "nowhere"),
    ({"executor": 5}, DeclarationError, "executor must be a name"),
    ({"max_retry": 3}, DeclarationError, "no option 'max_retry'; did you mean 'max_retries'?"),
    ({"name": "two words"}, DeclarationError, "'two words' is not a name"),
    ({"name": 5}, DeclarationError, "5 is not a name"),
    ({"aliases": ("a b",)}, DeclarationError, "'a b' is not a name"),
    ({"aliases": "ab"}, DeclarationError, "aliases"),
    ({"schedule": "61 * * * *"}, BadSchedule, "minute.*61"),
    ({"schedule": "0 0 30 2 *"}, BadSchedule, "never"),
    ({"schedule": "* * *"}, BadSchedule, "3"),
    ({"schedule": NAIVE}, BadSchedule, "time zone"),
    ({"schedule": 5}, BadSchedule, "5"),
    ({"schedule": timedelta(0)}, BadSchedule, "out of range"),
    ({"schedule": CronSchedule("* * * * *", args={"whom": "x"})}, (ArgumentError, BadSchedule), "whom"),
]  # fmt: skip


def plain() -> None:
    """On the event loop it would hold up all the others."""


RULES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: Rate("1/s", by="a", burst=2, cost=3), BadLimit, "cost 3 is more than burst 2"),
    (lambda: AtMost(0, by="a"), BadLimit, "0 is out of range"),
    (lambda: IntervalSchedule(0), BadSchedule, "interval"),
    (lambda: IntervalSchedule(5, start=NAIVE), BadSchedule, "time zone"),
    (lambda: CronSchedule("0 25 * * *"), BadSchedule, "hour.*25"),
    (lambda: CronSchedule("0 3 * * *", tz="Mars/Base"), BadSchedule, "Mars/Base"),
    (lambda: App(store="mongo://x"), DeclarationError, "'mongo://x' is not a store's URL; known are memory://"),
    (lambda: App(store="memory"), DeclarationError, "'memory' is not a store's URL"),
    (lambda: App(store=5), DeclarationError, "5 is not a store's URL"),
    (lambda: App(store="memory://").task(executor="async")(plain), DeclarationError, "'plain'.*`async def`.*thread"),
    (lambda: App("my shop", store="memory://"), ValueError, "name of the app 'my shop' is not a name"),
    (lambda: App(store="memory://", concurrency=0), ValueError, "concurrency.*from 1, not 0"),
    (lambda: App(store="memory://", threads=0), ValueError, "thread.*from 1, not 0"),
    (lambda: App(store="memory://", processes=-1), ValueError, "process.*from 1, not -1"),
    (lambda: App(store="memory://", max_workers=0), ValueError, "from 1, not 0"),
    (lambda: App(store="memory://", poll_interval=0), ValueError, "poll_interval"),
    (lambda: App(store="memory://", poll_interval=-1), DeclarationError, "poll_interval: -1 is out of range"),
    (lambda: App(store="memory://", stop_timeout="5"), DeclarationError, "stop_timeout: '5' is of type str"),
    (lambda: App(store="memory://", task_timeout=0), DeclarationError, "timeout must be more than 0"),
    (lambda: App(store="memory://", defaults={"max_retry": 1}), DeclarationError, "no option 'max_retry'"),
    (lambda: App(store="memory://", tz="Mars/Base"), (DeclarationError, ValueError), "Mars/Base"),
    (lambda: Scheduler("my shop"), ValueError, "name of the scheduler 'my shop' is not a name"),
    (lambda: Scheduler(store="mongo://x"), DeclarationError, "'mongo://x' is not a store's URL"),
    (lambda: Scheduler(concurrency=0), ValueError, "from 1, not 0"),
    (lambda: Scheduler(concurrency=True), ValueError, "from 1, not True"),
    (lambda: Scheduler(poll_interval=0), ValueError, "poll_interval"),
    (lambda: Scheduler(stop_timeout=-1), DeclarationError, "stop_timeout: -1 is out of range"),
]  # fmt: skip


@pytest.mark.parametrize(("act", "error", "message"), [case[1:] for case in CALLS], ids=[case[0] for case in CALLS])
def test_bad_calls_are_refused(act: Callable[[Shop], object], error: Any, message: str) -> None:
    shop = Shop()
    with pytest.raises(error, match=message) as raised:
        act(shop)
    assert error is RuntimeError or isinstance(raised.value, OnTheDotError)
    shop.check()


@pytest.mark.parametrize(("options", "error", "message"), OPTIONS, ids=[str(case[0])[:50] for case in OPTIONS])
def test_bad_call_options_are_refused(options: dict[str, Any], error: Any, message: str) -> None:
    shop = Shop()
    for fine in ({"priority": 5}, {"tags": ("e", "u")}, {"after": 3600}):
        shop.send.options(**fine).delay("a")
    count = sum(shop.app.status()[name] for name in ("queue_count", "delayed_count"))
    with pytest.raises(error, match=message) as raised:
        shop.send.options(**options).delay("a")
    assert isinstance(raised.value, ValueError) or options.keys() & {"metadata", "connection"}
    assert sum(shop.app.status()[name] for name in ("queue_count", "delayed_count")) == count, "nothing was stored"
    shop.check()


@pytest.mark.parametrize(("options", "error", "message"), DECLARED, ids=[str(case[0])[:50] for case in DECLARED])
def test_bad_declaration_options_are_refused(options: dict[str, Any], error: Any, message: str) -> None:
    shop = Shop()
    with pytest.raises(error, match=message) as raised:
        shop.task(**options)
    if raised.type is not ArgumentError and "name" not in options:
        assert "another" in str(raised.value), "names the task"
    shop.task()  # the name is still free
    shop.check()


@pytest.mark.parametrize(("make", "error", "message"), RULES, ids=[case[2][:40] for case in RULES])
def test_bad_rules_apps_and_schedulers_are_refused(make: Callable[[], object], error: Any, message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        make()
    assert isinstance(raised.value, OnTheDotError)


def test_bad_declarations_are_refused() -> None:
    shop = Shop()
    for bad, error, message in (
        (lambda: shop.app.task(5), DeclarationError, "goes on a function, not on 5"),
        (lambda: shop.app.register(Mail), DeclarationError, "takes a consumer instance"),
        (lambda: shop.app.register(object()), DeclarationError, "takes a consumer instance"),
        (lambda: shop.app.around(sync_function), TypeError, "goes on an async function"),
        (lambda: shop.app.schedule(schedule="0 3 * * *")(needs), BadSchedule, "no value for to"),
        (lambda: shop.app.schedule(schedule=None)(sync_function), BadSchedule, "has no rule"),
    ):
        with pytest.raises(error, match=message):
            bad()
    shop.check()


async def needs(to: str) -> None: ...


class Mail(BaseTaskConsumer):
    name = "send"

    def consume(self, task: Task) -> None: ...


def test_a_duplicate_name_names_both_places() -> None:
    shop = Shop()

    def send() -> None: ...

    first = Shop.__init__.__code__.co_firstlineno
    here = send.__code__.co_firstlineno
    for declare, place in (
        (lambda: shop.app.task(send), f"test_bad_input.py:{here}"),
        (lambda: shop.app.task(name="other", aliases=["send"])(send), f"test_bad_input.py:{here}"),
        (lambda: shop.app.register(Mail()), "test_bad_input.py:"),
    ):
        with pytest.raises(DuplicateTask, match="'send' is declared twice") as raised:
            declare()
        assert place in str(raised.value)
        places = [int(word.split(":")[-1].strip(";")) for word in str(raised.value).split() if ".py:" in word]
        assert len(places) == 2
        assert first < places[0] < first + 20, "where the first one is"
    shop.task(name="other")  # a refused declaration leaves no name behind
    shop.check()


def test_result_on_the_loop_that_would_run_it() -> None:
    shop = Shop()

    async def main() -> None:
        async with shop.app.running():
            handle = shop.good.delay(2)
            for wait in (handle.result, handle.exception):
                with pytest.raises(SchedulerStateError, match=r"await f\.enqueue\(…\)"):
                    wait(timeout=1)
            await shop.app.ahandle(handle.uuid)

    asyncio.run(main())
    assert shop.ran == [1, 2]


def test_a_second_start_in_another_mode() -> None:
    shop = Shop()

    async def main() -> None:
        async with shop.app.running():
            for start in (lambda: shop.app.start(auto=True), lambda: shop.app.background().__enter__()):
                with pytest.raises(SchedulerStateError, match="another way"):
                    start()
            with pytest.raises(SchedulerStateError, match=r"async with app\.running\(\)"):
                shop.app.run()
            with pytest.raises(SchedulerStateError, match="while running"), shop.app.override(store="memory://"):
                pass
            await (await shop.good.enqueue(2))

    asyncio.run(main())
    assert shop.ran == [1, 2]


async def test_bad_executors_are_refused() -> None:
    """An own executor runs tasks; a task that a child process cannot find fails with the reason; others go on."""

    class Own(Executor):
        hard = True

        async def run(self, call: Callable[..., object], *args: object) -> object:
            return call(*args)

        def close(self) -> None: ...

    app: App[None] = App(store="memory://", executors={"own": Own()})

    @app.task
    async def good() -> int:
        return 1

    @app.task(executor="own")
    def own() -> int:
        return 2

    @app.task(executor="process")
    def apart() -> int:
        return 3

    async with app.running():
        assert await (await good.enqueue()).result(timeout=SOON) == 1
        assert await (await own.enqueue()).result(timeout=SOON) == 2
        with pytest.raises(OnTheDotError, match="declare it at module level"):
            await (await apart.enqueue()).result(timeout=20)


def test_a_record_that_cannot_be_read_fails_alone() -> None:
    """A record of an older signature fails with its raw bytes; other tasks go on."""
    shop = Shop()

    async def main() -> None:
        async with shop.app.running():
            bad = await shop.app.named("elsewhere").enqueue(wrong=1)  # not known: any argument is taken

            @shop.app.task(name="elsewhere")
            async def elsewhere(right: int) -> None: ...

            with pytest.raises(OnTheDotError, match=r"wrong|unknown"):
                await bad.result(timeout=SOON)
            assert await bad.state() == "failed"
            await (await shop.good.enqueue(2))

    asyncio.run(main())
    assert shop.ran == [1, 2]
