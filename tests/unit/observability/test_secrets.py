"""No log line has a value of an argument, except the dropped task that the log keeps, without secrets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from onthedot import App, ArgumentError, Scheduler, Task, current_task
from onthedot.clock.manual import ManualClock
from onthedot.codec.task_failure import TaskFailure
from onthedot.model.redaction import redacted
from onthedot.observability.logs import LogObserver
from onthedot.stores.contract import NewEvent, NewTask, OutboxEvent
from tests.support.waits import SOON, until

CANARY = "canary-5d1c"


class Size(Enum):
    SMALL = "small"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """All log lines, tracebacks included; none may have the canary."""
    caplog.set_level(logging.DEBUG)
    lines: list[str] = []
    yield lines
    lines += [caplog.handler.format(record) for record in caplog.get_records("call")]
    assert lines
    assert [line for line in lines if CANARY in line] == []


def shop(app: App[Any]) -> App[Any]:
    @app.task(unique="{key}", max_retries=1, backoff=0.0, expires=3600, label="for {key}", tags=("eu",))
    async def send(key: str, fails: bool = False) -> object:
        if fails:
            raise ValueError("no such order")
        return object()  # cannot be stored

    @app.task
    async def sized(size: Size = Size.SMALL, count: int = 1) -> None: ...

    @app.task
    async def parent(key: str) -> None:
        current_task().spawn(send.options(unique=f"{key}\0").s(key))

    @app.task(timeout=0.01)
    async def slow(key: str) -> None:
        await asyncio.sleep(SOON)

    return app


async def test_log_of_a_worker_has_no_arguments(lines: list[str]) -> None:
    app = shop(App("shop", store="memory://", stop_timeout=0))
    async with app.running():
        handles = [
            await app.named("send").enqueue(key=CANARY),
            await app.named("slow").enqueue(key=CANARY),
            await app.named("parent").enqueue(key=CANARY),
            await app.named("send").options(uuid="u1", after=60, metadata={"k": CANARY}).enqueue(key=f"2 {CANARY}"),
            await app.named("send").options(uuid="u1", label=CANARY).enqueue(key=f"3 {CANARY}"),
            await app.named("send").enqueue(key=f"4 {CANARY}", fails=True),
        ]
        await handles[3].cancel()
        with pytest.raises(ArgumentError):
            await app.named("send").options(unique=True).enqueue(key=f"{CANARY}\udcff")
        await until(lambda: all_ended(handles))


async def all_ended(handles: list[Any]) -> bool:
    return all([await handle.done() for handle in handles])


@pytest.mark.parametrize(
    "body",
    [
        b'{"args": {"size": "%s"}}' % CANARY.encode(),
        b'{"args": {"count": "%s"}}' % CANARY.encode(),
        b'{"args": {"%s": 1}}' % CANARY.encode(),
        b'{"canary": "%s' % CANARY.encode(),
    ],
    ids=["enum", "type", "name", "truncated"],
)
async def test_log_of_an_undecodable_task_has_no_arguments(lines: list[str], body: bytes) -> None:
    app = shop(App("shop", store="memory://", stop_timeout=0))
    async with app.running():
        await app.runtime.store.add([NewTask("u1", "sized", body), NewTask("u2", "nobody", body[:-3])])
        await until(lambda: all_ended([app.ahandle("u1"), app.ahandle("u2")]))
        assert CANARY in str(await app.get("u1")), "the store keeps it for operators"


@pytest.mark.parametrize(
    ("kind", "payload"),
    [(Size, CANARY), (list[Size], ["small", CANARY]), (int, CANARY), (dict[str, int], {CANARY: CANARY})],
)
async def test_log_of_an_unreadable_signal_has_no_payload(lines: list[str], kind: Any, payload: Any) -> None:
    app: App[Any] = App("shop", store="memory://", stop_timeout=0)

    @app.task
    async def order() -> None:
        with pytest.raises(TimeoutError):
            await current_task().wait_for("approved", type=kind, timeout=0)

    async with app.running():
        handle = await order.enqueue()
        await handle.signal("approved", payload)
        await handle.result(SOON)


def test_log_hides_secrets_in_errors_of_schedules_and_buses(lines: list[str], caplog: pytest.LogCaptureFixture) -> None:
    log = LogObserver(None)
    text = f"no answer of https://ann:{CANARY}@bank.example, password={CANARY}"
    try:
        raise ValueError(text)
    except ValueError as error:
        log.schedule_failed("nightly", error)
    log.event_refused(OutboxEvent(1, NewEvent("order-17", "shop.events", "17", 0)), text)
    log.event_dead("order-17", "packer", TaskFailure("ValueError", text))
    hidden = "no answer of https://…@bank.example, password=…"
    assert [line.count(hidden) for line in caplog.messages] == [1, 1, 1]
    assert caplog.text.count(f"ValueError: {hidden}") == 2, "a traceback and a dead letter"


async def test_dropped_task_is_logged_without_secrets_and_cut(
    lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = Scheduler(store="memory://")
    secret = {"api_key": CANARY, "url": f"redis://:{CANARY}@cache"}
    scheduler.add_task(Task("nobody", {"to": "ann", "auth": [{"Password": CANARY}], **secret}))
    scheduler.add_task(Task("nobody", {"to": "x" * 5000}))
    await scheduler.start()
    await until(lambda: sum("[drop]" in line for line in caplog.messages) == 2)
    await scheduler.stop()
    first, second = (line for line in caplog.messages if "[drop]" in line)
    assert "'to': 'ann', 'auth': [{'Password': '…'}], 'api_key': '…', 'url': 'redis://…@cache'" in first
    assert len(second) < 1100


@pytest.mark.parametrize(
    ("key", "hidden"),
    [
        *[(key, True) for key in ("password", "db_password", "userToken", "API-Key", "Cookie", "card", "cardNumber")],
        *[(key, False) for key in ("passenger", "discard", "to", "keyboard", "tokenizer", "cardinality")],
    ],
)
def test_key_that_names_a_secret_is_hidden(key: str, hidden: bool) -> None:
    assert redacted({key: "x"}) == {key: "…" if hidden else "x"}


def test_bearer_token_is_hidden() -> None:
    assert redacted(["Authorization: Bearer abc.def", ("basic Zm9v",)]) == ["Authorization: Bearer …", ["basic …"]]


def test_add_of_a_known_uuid_names_what_differs(app: App[Any], clock: ManualClock, caplog: Any) -> None:
    shop(app)
    sized = app.named("sized").options(uuid="u1")
    sized.delay(count=1)
    sized.delay(count=1)
    assert [line for line in caplog.messages if "added before" in line] == []
    sized.delay(count=2, size=Size.SMALL)
    app.named("sized").options(uuid="u1", label="x").delay(count=1)
    app.named("send").options(uuid="u1").delay(key="x")
    assert [line for line in caplog.messages if "added before" in line] == [
        f"task u1 from sized was added before with other content ({fields}); the first one is kept"
        for fields in ("argument 'size', argument 'count'", "label", "source")
    ]
