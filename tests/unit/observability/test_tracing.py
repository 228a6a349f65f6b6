"""Spans of two programs, one that adds and one that works, on every store; and programs that do not trace."""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from onthedot import App, IntervalSchedule
from onthedot.engine.turns import SLOW_TURN
from onthedot.errors import DeclarationError, StoreUnavailable
from onthedot.model.traces import TraceContext
from onthedot.observability.log_format import JsonFormatter, TaskFields
from onthedot.observability.logs import LogObserver
from onthedot.observability.spans import Tracing, read_context
from onthedot.observability.trace_setup import find_tracing
from onthedot.runtime import runtime
from onthedot.stores.contract import NewTask
from onthedot.testing import TestApp
from tests.support.app_stores import AppStore
from tests.support.waits import SOON
from tests.support.web_site import web_site

pytestmark = pytest.mark.once

PROGRAM = Path(__file__).parents[2] / "support" / "programs" / "traced.py"
SWITCHED_OFF = "tracing is switched off: disk full"
Spans = Sequence[dict[str, Any]]


def run(store: AppStore, file: Path, verb: str, mode: str = "link") -> None:
    command = [sys.executable, str(PROGRAM), store.name, store.url, str(file), verb]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=3 * SOON, env={"ONTHEDOT_TRACE": mode}, cwd=PROGRAM.parents[3]
    )
    assert ended.returncode == 0, ended.stderr


def read(file: Path) -> Spans:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def named(spans: Spans, name: str) -> Spans:
    return [span for span in spans if span["name"] == name]


def one(spans: Spans, name: str) -> dict[str, Any]:
    (span,) = named(spans, name)
    return span


def assert_linked(spans: Spans, source: str, runs: int = 1) -> None:
    """Every run of the source is a trace of its own, linked to the span that has added it."""
    send = one(spans, f"send {source}")
    found = named(spans, f"process {source}")
    assert [span["links"] for span in found] == [[send["id"]]] * runs, source
    assert {span["kind"] for span in found} == {"CONSUMER"}
    assert [span["parent"] for span in found] == [None] * runs
    assert send["trace"] not in {span["trace"] for span in found}
    assert (send["kind"], send["attributes"]["messaging.system"]) == ("PRODUCER", "onthedot")


def test_runs_are_linked_to_the_spans_of_their_adds(app_store: AppStore, tmp_path: Path) -> None:
    file = tmp_path / "spans"
    for verb in ["both"] if app_store.url == "memory://" else ["add", "work"]:
        run(app_store, file, verb)
    spans = read(file)
    for source in ("first", "in_thread", "in_process", "doomed"):
        assert_linked(spans, source)
    assert_linked(spans, "flaky", 2)
    assert_linked(spans, "parent", 2)
    check_adds(spans)
    check_code_of_users(spans)
    check_passed_on(spans)
    check_errors(spans)
    check_schedule(spans)
    assert "hunter2" not in file.read_text("utf-8")


def check_adds(spans: Spans) -> None:
    assert one(spans, "send first")["parent"] == one(spans, "request")["id"]
    assert one(spans, "send parent")["parent"] == one(spans, "async request")["id"]
    assert_linked(spans, "many", 3)
    assert one(spans, "send many")["attributes"]["messaging.batch.message_count"] == 3
    sent = one(spans, "send first")["attributes"]
    handled = one(spans, "process first")["attributes"]
    assert sent["messaging.message.id"] == handled["messaging.message.id"]
    assert {name: handled[name] for name in ("messaging.operation.type", "messaging.destination.name")} == {
        "messaging.operation.type": "process",
        "messaging.destination.name": "first",
    }
    assert (handled["onthedot.attempt"], handled["onthedot.state"]) == (1, "succeeded")
    assert handled["onthedot.fence"] > 0


def check_code_of_users(spans: Spans) -> None:
    """The span of the run is current in a coroutine, in a thread and in another process."""
    for inside, source in (("first", "first"), ("thread", "in_thread"), ("process", "in_process")):
        parent = one(spans, f"process {source}")
        span = one(spans, f"inside {inside}")
        assert (span["parent"], span["trace"]) == (parent["id"], parent["trace"])


def check_passed_on(spans: Spans) -> None:
    """Spawned tasks, a child, and the members of a flow."""
    assert one(spans, "process spawned")["links"] == [one(spans, "process first")["id"]]
    assert one(spans, "process child")["links"] == [named(spans, "process parent")[0]["id"]]
    assert_linked(spans, "member", 2)


def check_errors(spans: Spans) -> None:
    first, second = sorted(named(spans, "process flaky"), key=lambda span: span["attributes"]["onthedot.attempt"])
    assert [span["attributes"]["onthedot.state"] for span in (first, second)] == ["requeued", "succeeded"]
    assert [span["status"] for span in (first, second)] == ["UNSET", "UNSET"]
    (event,) = first["events"]
    assert (event["name"], event["exception.type"]) == ("exception", "ValueError")
    assert "the first time" in event["exception.stacktrace"]
    doomed = one(spans, "process doomed")
    assert (doomed["status"], doomed["attributes"]["onthedot.state"], len(doomed["events"])) == ("ERROR", "failed", 1)


def check_schedule(spans: Spans) -> None:
    """The window begins a trace."""
    sent = named(spans, "send tick")
    assert sent
    assert {(span["parent"], span["attributes"]["onthedot.schedule"]) for span in sent} == {(None, "tick")}
    runs = named(spans, "process tick")
    assert {link for span in runs for link in span["links"]} <= {span["id"] for span in sent}
    assert {span["attributes"]["onthedot.schedule"] for span in runs} == {"tick"}


def test_runs_are_children_if_that_is_wanted_and_absent_if_not(tmp_path: Path) -> None:
    store = AppStore("shop", f"sqlite:///{tmp_path}/shop.db")
    file = tmp_path / "spans"
    run(store, file, "both", "parent")
    spans = read(file)
    process = one(spans, "process first")
    assert (process["parent"], process["trace"]) == (one(spans, "send first")["id"], one(spans, "request")["trace"])
    assert (process["links"], one(spans, "process spawned")["trace"]) == ([], process["trace"])
    without = tmp_path / "without"
    run(store, without, "both", "off")
    assert {span["name"] for span in read(without)} == {
        "request", "async request", "inside first", "inside thread", "inside process",
    }  # fmt: skip


def test_opentelemetry_is_not_imported_by_a_program_that_does_not_trace() -> None:
    program = """
import sys
from onthedot import App

app = App(store="memory://")

@app.task
async def send() -> int:
    return 1

with app.background():
    assert send.delay().result(timeout=20) == 1
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SOON)
    assert (ended.stdout, ended.returncode) == ("[]\n", 0), ended.stderr


class Recorded:
    """Tracing with spans in memory; nothing of the process is changed."""

    def __init__(self, *processors: SpanProcessor) -> None:
        self.exporter = InMemorySpanExporter()
        self._provider = TracerProvider()
        for processor in (*processors, SimpleSpanProcessor(self.exporter)):
            self._provider.add_span_processor(processor)
        self.tracing = self.find("1", LogObserver(None).scheduler)

    def find(self, version: str, log: logging.LoggerAdapter[logging.Logger]) -> Tracing:
        """As `find_tracing` in a program whose tracer provider is this one."""
        return Tracing(version, log, runs_in_trace=False, provider=self._provider)

    def tracer(self, name: str) -> trace.Tracer:
        """For spans of the user's code."""
        return self._provider.get_tracer(name)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()


def test_json_line_inside_a_span_names_trace_and_span() -> None:
    provider = TracerProvider()
    record = logging.LogRecord("shop", logging.INFO, "", 1, "sent", None, None)
    record.request_id = "r1"
    record.user = "ana"
    with provider.get_tracer("shop").start_as_current_span("request") as span:
        assert TaskFields().filter(record)
    line = json.loads(JsonFormatter().format(record))
    context = span.get_span_context()
    assert (line["trace_id"], line["span_id"]) == (f"{context.trace_id:032x}", f"{context.span_id:016x}")
    assert (line["request_id"], line["user"]) == ("r1", "ana")


def test_slow_and_failed_turns_have_spans() -> None:
    recorded = Recorded()
    recorded.tracing.store_slow("turn", 250)
    recorded.tracing.store_failed("the loop", StoreUnavailable("no answer of redis://u:hunter2@r"))
    recorded.tracing.store_failed("heartbeat", StoreUnavailable("no answer"))
    slow, failed = recorded.spans
    assert (slow.name, failed.name) == ("settle", "settle")
    assert slow.start_time is not None
    assert slow.end_time is not None
    assert slow.end_time - slow.start_time >= 250_000_000
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert "hunter2" not in failed.to_json()
    assert SLOW_TURN == 100


def test_tracing_that_raises_is_switched_off_and_harms_no_add(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("disk full")

    recorded = Recorded(Broken())
    tasks = [NewTask("1", "send", b'{"args":{}}')]
    for _ in range(2):
        span = recorded.tracing.begin_send(tasks)
        assert span.tasks == tasks
        span.end()
    assert [record.message for record in caplog.records] == [SWITCHED_OFF]


class BrokenAtEnd(SpanProcessor):
    """Of spans with this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def on_end(self, span: ReadableSpan) -> None:
        if span.name == self._name:
            raise RuntimeError("disk full")


@pytest.mark.parametrize("name", ["send double", "process double", "send tick"])
async def test_span_that_cannot_end_harms_no_add_no_run_and_no_window(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = Recorded(BrokenAtEnd(name))
    monkeypatch.setattr(runtime, "find_tracing", recorded.find)
    app: App[Any] = App("shop")

    @app.task
    async def double(number: int) -> int:
        return number * 2

    @app.schedule(IntervalSchedule(60))
    async def tick() -> None: ...

    with TestApp(app) as test:
        handles = [await double.enqueue(number) for number in range(2)]
        await test.advance(minutes=2)
        assert [await handle.result() for handle in handles] == [0, 2]
        assert {task.state for task in test.tasks()} == {"succeeded"}
        assert len(test.tasks("tick")) > 1
    assert [each.message for each in caplog.records if "trac" in each.message] == [SWITCHED_OFF]


def test_tracing_stays_switched_off_for_adds_in_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "shop.db"
    monkeypatch.setattr(runtime, "find_tracing", Recorded(BrokenAtEnd("send double")).find)
    app: App[Any] = App("shop", store=f"sqlite:///{file}")

    @app.task
    def double(number: int) -> int:
        return number * 2

    with closing(sqlite3.connect(file)) as connection:
        for number in range(2):
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                handle = double.options(connection=connection).delay(number)
            assert app.sync.get(handle.uuid).state == "ready"
    assert [each.message for each in caplog.records if "trac" in each.message] == [SWITCHED_OFF]


async def test_schedule_that_a_request_creates_does_not_keep_the_trace_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And there is no span of an add, because none has happened."""
    recorded = Recorded()
    monkeypatch.setattr(runtime, "find_tracing", recorded.find)
    app: App[Any] = App("shop")

    @app.task
    async def send(to: str) -> None: ...

    with TestApp(app):
        async with app, web_site(app) as site:
            body = {"name": "news", "source": "send", "args": {"to": "ann"}, "rule": "0 8 * * *"}
            created = await site.operator.post("/schedules", body)
            assert created.status == 201, created
        (schedule,) = await app.runtime.store.schedules()
        assert b"trace" not in schedule.rule
    assert recorded.spans == ()


def test_span_of_a_window_that_another_worker_has_fired_is_not_exported() -> None:
    recorded = Recorded()
    window = recorded.tracing.begin_window("tick", [NewTask("1", "tick", b"{}")])
    assert window.tasks[0].body.startswith(b'{"trace":"00-')
    assert recorded.spans == ()


@pytest.mark.parametrize("parent", ["", "00-0-0-01", f"00-{'0' * 32}-{'1' * 16}-01", "x" * 55])
def test_trace_that_cannot_be_read_is_none(parent: str) -> None:
    assert read_context(TraceContext(parent)) is None


def test_without_a_provider_there_is_no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogObserver(None).scheduler
    assert find_tracing("1", log) is None
    monkeypatch.setenv("ONTHEDOT_TRACE", "yes")
    with pytest.raises(DeclarationError, match="ONTHEDOT_TRACE is link, parent or off, not 'yes'"):
        find_tracing("1", log)
