"""Events carry the trace of the code that has published them, and the runs of agents continue it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from onthedot import App, Reject, current_task
from onthedot.events import Event, Events
from onthedot.model.traces import TraceContext
from onthedot.runtime import runtime
from onthedot.stores.capabilities import Outbox, capability
from tests.support.waits import until
from tests.unit.observability.test_tracing import Recorded

PLACED = "Shop.Order.Placed"
PAID = "Shop.Order.Paid"
REFUSED = "Shop.Payment.Refused"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Spans of this test, in memory."""
    recorded = Recorded()
    monkeypatch.setattr(runtime, "find_tracing", recorded.find)
    return recorded


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App[Any]]:
    app: App[Any] = App("shop", store=f"sqlite:///{tmp_path}/shop.db", events=Events(results=(PAID,)))
    yield app
    app.runtime.close()


def placed(number: int = 1, **fields: Any) -> Event[Any]:
    return Event(PLACED, {"n": number}, aggregate_id=str(number), **fields)


@contextmanager
def request_span(recorded: Recorded, name: str = "POST /orders") -> Iterator[str]:
    """A span of the user that is current; its ids as in a traceparent."""
    with recorded.tracer("shop").start_as_current_span(name) as span:
        context = span.get_span_context()
        yield f"{context.trace_id:032x}-{context.span_id:016x}"


async def published(app: App[Any]) -> dict[str, dict[str, str]]:
    """The headers of the rows of the outbox, by type."""
    rows = await capability(app.runtime.outbox_store, Outbox, "test").find_events({}, 0, 1000)
    return {row.event.type: json.loads(row.event.headers or b"{}") for row in rows if row.event.raw is None}


def parent_of(headers: dict[str, str]) -> str:
    """Trace and span; the flags are those of the SDK."""
    version, trace_id, span_id, _ = headers["traceparent"].split("-")
    assert version == "00"
    return f"{trace_id}-{span_id}"


def run_of(recorded: Recorded, source: str) -> Any:
    """The span of the only run of a source."""
    (found,) = [span for span in recorded.spans if span.name == f"process {source}"]
    return found


def ids_of(span: Any) -> str:
    context = span.get_span_context()
    return f"{context.trace_id:032x}-{context.span_id:016x}"


def links_of(span: Any) -> list[str]:
    return [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in span.links]


async def ended(app: App[Any], *sources: str) -> None:
    async def have_ended() -> bool:
        tally = await app.runtime.store.tally()
        return all(any(tally.get((source, state), 0) for state in ("succeeded", "failed")) for source in sources)

    await until(have_ended)


async def test_trace_goes_from_the_request_over_an_agent_to_the_next(app: App[Any], recorded: Recorded) -> None:
    @app.agent("cashier", consumes=(PLACED,))
    async def cashier(event: Event[Any]) -> Event[Any]:
        return event.reply(PAID, {})

    @app.agent("sender", consumes=(PAID,))
    def sender(event: Event[Any]) -> None: ...

    async with app.running():
        with request_span(recorded) as request:
            await app.publish(placed())
        await ended(app, "agent.cashier", "agent.sender")
        headers = await published(app)
    assert parent_of(headers[PLACED]) == request
    cashiers = run_of(recorded, "agent.cashier")
    assert links_of(cashiers) == [request]
    assert parent_of(headers[PAID]) == ids_of(cashiers)
    assert links_of(run_of(recorded, "agent.sender")) == [ids_of(cashiers)]


async def test_task_that_publishes_is_in_the_header(app: App[Any], recorded: Recorded) -> None:
    @app.task
    def order(number: int) -> None:
        current_task().publish(placed(number))

    async with app.running():
        await (await order.enqueue(1)).result(20)
        headers = await published(app)
    assert parent_of(headers[PLACED]) == ids_of(run_of(recorded, "order"))


def test_events_of_sync_code_and_of_transactions_carry_the_trace(
    app: App[Any], recorded: Recorded, tmp_path: Path
) -> None:
    with request_span(recorded) as request:
        app.sync.publish(placed())
        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            app.sync.publish(Event(PAID, {}, aggregate_id="1"), connection=connection)
            connection.commit()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        rows = connection.execute("SELECT type, headers FROM onthedot_event_outbox ORDER BY seq").fetchall()
    assert [(kind, parent_of(json.loads(text))) for kind, text in rows] == [(PLACED, request), (PAID, request)]


async def test_failure_event_and_dead_letter_keep_the_trace_of_the_request(app: App[Any], recorded: Recorded) -> None:
    @app.agent("cashier", consumes=(PLACED,), fails_as=REFUSED)
    async def cashier(event: Event[Any]) -> None:
        raise Reject("no money")

    async with app.running():
        with request_span(recorded) as request:
            await app.publish(placed())
        await ended(app, "agent.cashier")
        headers = await published(app)
        rows = await capability(app.runtime.outbox_store, Outbox, "test").find_events({}, 0, 1000)
        (letter,) = [row.event for row in rows if row.event.raw is not None]
    assert parent_of(headers[REFUSED]) == request
    assert parent_of(json.loads(letter.headers or b"{}")) == request


async def test_trace_that_the_user_has_given_is_kept(app: App[Any], recorded: Recorded) -> None:
    own = f"00-{'a' * 32}-{'b' * 16}-01"
    with request_span(recorded):
        await app.publish(placed(headers={"Traceparent": own}))
    headers = (await published(app))[PLACED]
    assert headers == {"ce_source": "/shop", "Traceparent": own}


async def test_agent_takes_the_trace_of_another_program(app: App[Any], recorded: Recorded) -> None:
    """The user's header stands for a message that another program has sent."""

    @app.agent("cashier", consumes=(PLACED,))
    async def cashier(event: Event[Any]) -> None: ...

    foreign = f"{'a' * 32}-{'b' * 16}"
    async with app.running():
        await app.publish(placed(headers={"traceparent": f"00-{foreign}-01", "tracestate": "vendor=1"}))
        await ended(app, "agent.cashier")
    (link,) = run_of(recorded, "agent.cashier").links
    assert f"{link.context.trace_id:032x}-{link.context.span_id:016x}" == foreign
    assert link.context.trace_state.to_header() == "vendor=1"


async def test_trace_that_cannot_be_read_harms_no_agent(app: App[Any], recorded: Recorded) -> None:
    @app.agent("cashier", consumes=(PLACED,))
    async def cashier(event: Event[Any]) -> None: ...

    async with app.running():
        await app.publish(placed(headers={"traceparent": "00-0-0-01"}))
        await ended(app, "agent.cashier")
    assert links_of(run_of(recorded, "agent.cashier")) == []


@pytest.mark.parametrize("traced", [False, True])
async def test_events_have_no_header_without_a_span(
    app: App[Any], traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a program that does not trace adds none to events that it publishes in a span of its own."""
    recorded = Recorded()
    if traced:
        monkeypatch.setattr(runtime, "find_tracing", recorded.find)
        await app.publish(placed())
    else:
        with request_span(recorded):
            await app.publish(placed())
    assert (await published(app))[PLACED] == {"ce_source": "/shop"}


def test_headers_of_a_trace_have_its_state_if_there_is_one() -> None:
    assert TraceContext("00-1").headers == {"traceparent": "00-1"}
    assert TraceContext("00-1", "a=1").headers == {"traceparent": "00-1", "tracestate": "a=1"}
