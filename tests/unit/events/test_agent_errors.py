"""Errors of an agent: retries, dead letters and throttling. The test drives the clock."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from onthedot import Cancel, Reject, Retry, Snooze
from onthedot.events.event import Event
from onthedot.events.outbox_rows import bus_message
from onthedot.stores.contract import OutboxEvent
from tests.unit.events.agent_steps import FAILED, Bench, HttpError, Request, request


async def test_retriable_errors_are_retried_with_backoff_then_the_event_is_dead(bench: Bench) -> None:
    @bench.agent()
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append(bench.test.clock.now())
        raise ConnectionError("no answer")

    bench.test.deliver(request())
    await bench.test.drain()
    waits = [later - earlier for earlier, later in zip(bench.seen, bench.seen[1:], strict=False)]
    assert waits == [500, 1000, 2000]
    (letter,) = bench.test.dead_letters("worldbuilder")
    assert (letter.event_id, letter.error_type, letter.attempts) == ("e-t1", "ConnectionError", 4)


async def test_permanent_error_is_dead_at_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    @bench.agent(fails_as=FAILED)
    async def worldbuilder(event: Event[Request]) -> None:
        raise HttpError(404)

    event = request(correlation_id="cmd-7", headers={"tenant": "acme"})
    info = await bench.run(event)
    assert (info.state, info.attempt) == ("failed", 1)
    assert info.error.type.endswith("HttpError")
    (raw,) = await bench.published(raw=True)
    assert (raw.topic, raw.key, raw.correlation_id) == ("genesis.session.events.DLT", "t1", "cmd-7")
    assert raw.raw == b'{"session_id":"s1","task_id":"t1","count":2}'
    headers = dict(bus_message(OutboxEvent(1, raw), "").headers)
    assert headers["ce_id"] == b"e-t1"
    assert headers["tenant"] == b"acme"
    (letter,) = bench.test.dead_letters("worldbuilder")
    assert (letter.topic, letter.group) == ("genesis.session.events", "genesis.worldbuilder")
    assert (letter.error_message, letter.attempts, letter.task) == ("status 404", 1, info.uuid)
    assert "HttpError" in letter.traceback
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any(line.startswith("[dead] event e-t1 of worldbuilder: ") for line in lines)


async def test_failure_event_is_published_with_the_dead_letter(bench: Bench) -> None:
    @bench.agent(fails_as=FAILED, max_retries=1)
    async def worldbuilder(event: Event[Request]) -> None:
        raise ConnectionError("no answer")

    bench.test.deliver(request(correlation_id="cmd-7"))
    await bench.test.drain()
    (event,) = await bench.published()
    assert (event.type, event.key, event.aggregate_id) == (FAILED, "t1", "s1")
    assert (event.correlation_id, event.causation_id, event.retries) == ("cmd-7", "e-t1", 1)
    assert msgspec.json.decode(event.payload or b"") == {
        "error": "no answer",
        "error_type": "ConnectionError",
        "task_id": "t1",
        "event_id": "e-t1",
        "attempts": 2,
    }


async def test_cancelled_event_has_no_dead_letter(bench: Bench) -> None:
    @bench.agent(fails_as=FAILED)
    async def worldbuilder(event: Event[Request]) -> None:
        raise Cancel("not wanted")

    assert (await bench.run(request())).state == "cancelled"
    assert await bench.outbox() == []


@pytest.mark.parametrize(
    ("raised", "state", "delay"),
    [(Reject("never"), "failed", 0), (Retry(after=7), "scheduled", 7000), (Snooze(9), "scheduled", 9000)],
)
async def test_controls_are_applied_as_raised(bench: Bench, raised: BaseException, state: str, delay: int) -> None:
    calls: list[object] = []

    @bench.agent(classify_error=lambda error, event: calls.append(error) or "permanent")
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append(bench.test.clock.now())
        raise raised

    info = await bench.run(request())
    assert info.state == state
    assert calls == []
    if delay:
        await bench.test.advance(milliseconds=delay)
        assert bench.seen[1] - bench.seen[0] == delay


async def test_classification_of_the_agent_decides(bench: Bench) -> None:
    answers: dict[str, Any] = {"t1": "permanent", "t2": Retry(after=7), "t3": "retriable"}

    @bench.agent(classify_error=lambda error, event: answers[event.payload.task_id], ordered=False)
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append(event.payload.task_id)
        raise ConnectionError("no answer")

    for task_id in answers:
        bench.test.deliver(request(task_id))
    await bench.test.advance(7)
    assert bench.seen.count("t1") == 1
    assert bench.seen.count("t2") == 2
    assert bench.seen.count("t3") == 4
    await bench.test.drain()
    assert bench.seen.count("t2") == 4, "a returned Retry is counted"
    letters = {letter.event_id: letter for letter in bench.test.dead_letters("worldbuilder")}
    assert {letter.error_type for letter in letters.values()} == {"ConnectionError"}
    assert letters["e-t2"].attempts == 4


@pytest.mark.parametrize("answer", ["temporary", None, ValueError("a bug")])
async def test_classification_that_cannot_be_used_is_permanent(bench: Bench, answer: object) -> None:
    def classify_error(error: BaseException, event: Event[Any]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    @bench.agent(classify_error=classify_error)
    async def worldbuilder(event: Event[Request]) -> None:
        raise ConnectionError("no answer")

    info = await bench.run(request())
    assert info.state == "failed"
    assert info.error.type == ("ValueError" if isinstance(answer, Exception) else "TypeError")
    assert "ConnectionError: no answer" in info.error.traceback


async def test_run_that_takes_too_long_is_retried(bench: Bench) -> None:
    @bench.agent(timeout=2, max_retries=1)
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append(event.id)
        await asyncio.sleep(1000)

    bench.test.patience = 0.05
    bench.test.deliver(request())
    await bench.test.drain()
    assert bench.seen == ["e-t1"] * 2
    (letter,) = bench.test.dead_letters("worldbuilder")
    assert letter.error_type == "onthedot.TaskTimeout"


# -- throttling


async def test_throttled_event_uses_no_retry_and_the_agent_starts_nothing_meanwhile(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    throttled = True

    @bench.agent(ordered=False)
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append((event.payload.task_id, bench.test.clock.now()))
        if throttled:
            raise HttpError(429, Retry_After="10")

    began = bench.test.clock.now()
    (uuid,) = bench.test.deliver(request("t1"))
    await bench.test.run_until_idle()
    bench.test.deliver(request("t2"))
    await bench.test.advance(9.9)
    assert bench.seen == [("t1", began)]
    throttled = False
    await bench.test.advance(3)
    assert [task_id for task_id, _ in bench.seen[1:]] in (["t1", "t2"], ["t2", "t1"])
    assert all(at - began >= 10_000 for _, at in bench.seen[1:])
    info = await bench.info(uuid)
    assert (info.state, info.attempt) == ("succeeded", 1)
    lines = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith("[throttled] agent worldbuilder: 1") for line in lines) == 1


async def test_tasks_that_were_claimed_before_the_pause_do_not_call_the_code(bench: Bench) -> None:
    @bench.agent(ordered=False)
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append(event.payload.task_id)
        if len(bench.seen) == 1:
            raise HttpError(503, Retry_After="5")

    for number in range(10):
        bench.test.deliver(request(f"t{number}"))
    await bench.test.run_until_idle()
    assert len(bench.seen) == 1, "all ten are claimed in one turn"
    await bench.test.drain()
    assert len(bench.seen) == 11
    assert bench.test.dead_letters("worldbuilder") == []


async def test_event_that_is_throttled_without_end_is_dead_after_give_up(bench: Bench) -> None:
    @bench.agent(give_up=60)
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append(bench.test.clock.now())
        raise HttpError(429, Retry_After="10")

    (uuid,) = bench.test.deliver(request())
    await bench.test.drain()
    assert 60_000 <= bench.seen[-1] - bench.seen[0] <= 72_000
    (letter,) = bench.test.dead_letters("worldbuilder")
    assert (letter.error_message, letter.attempts) == ("status 429", 1)
    retried = bench.test.clock.now()
    await bench.app.operations.retry(uuid)
    await bench.test.drain()
    assert bench.seen[-1] - retried >= 60_000, "an operator's retry has as much time again"


async def test_throttled_sync_agent_pauses_too(bench: Bench) -> None:
    @bench.agent()
    def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append(bench.test.clock.now())
        if len(bench.seen) == 1:
            raise HttpError(429, Retry_After="10")

    bench.test.deliver(request())
    await bench.test.drain()
    assert len(bench.seen) == 2
    assert bench.seen[1] - bench.seen[0] >= 10_000
