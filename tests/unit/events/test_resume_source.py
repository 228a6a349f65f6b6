"""The task `onthedot.resume` sends its request to a real HTTP server that answers as Prefect does, or badly."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from onthedot import App, Reject
from onthedot.events import Event, Events, resume_source
from onthedot.events.resume_source import resume_flow_run
from tests.support.answering_server import Answer, answering
from tests.support.services.ports import free_port
from tests.support.waits import until

CREATED = "Shop.Part.Created"
RUN = "6a7f"


ACCEPT = Answer(201, {"status": "ACCEPT"})
ABORT = Answer(200, {"status": "ABORT", "details": {"reason": "Cannot resume a flow run that is not paused"}})
WAIT = Answer(200, {"status": "WAIT"})


@pytest.mark.parametrize("answer", [ACCEPT, ABORT])
def test_run_that_is_resumed_or_was_resumed_before_is_done(answer: Answer) -> None:
    with answering(answer) as server:
        resume_flow_run(f"{server.url}/api", RUN)
        ((path, headers, body),) = server.requests
    assert (path, body) == (f"/api/flow_runs/{RUN}/resume", b"{}")
    assert headers["Content-Type"] == "application/json"
    assert "Authorization" not in headers


def test_key_of_the_api_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_KEY", "pnu_1")
    with answering(ACCEPT) as server:
        resume_flow_run(f"{server.url}/api", RUN)
        assert server.requests[0].headers["Authorization"] == "Bearer pnu_1"


def test_unknown_run_is_rejected() -> None:
    with answering(Answer(404)) as server, pytest.raises(Reject, match=f"Prefect has no flow run {RUN}"):
        resume_flow_run(f"{server.url}/api", RUN)


def test_run_that_prefect_wants_to_resume_later_is_an_error_that_is_retried() -> None:
    with answering(WAIT) as server, pytest.raises(ConnectionError, match="asks to resume flow run 6a7f later"):
        resume_flow_run(f"{server.url}/api", RUN)


def test_server_that_fails_or_refuses_connections_is_an_error_that_is_retried() -> None:
    with answering(Answer(503)) as server, pytest.raises(HTTPError, match="503"):
        resume_flow_run(f"{server.url}/api", RUN)
    with pytest.raises(URLError, match="refused"):
        resume_flow_run(f"http://127.0.0.1:{free_port()}/api", RUN)


async def resumed_by(app: App[Any]) -> Any:
    """The task that resumes the run, when it has ended; the handle is complete from its begin."""
    async with app.running():
        await app.publish(Event(CREATED, {}, aggregate_id="1", correlation_id="c1"))
        handle = await app.expect({CREATED: 1}, correlation_id="c1", timeout=60, wakes=f"prefect:{RUN}")

        async def find_ended() -> Any:
            page = await app.operations.find(source="onthedot.resume")
            return [task for task in page.tasks if task.state in ("succeeded", "failed")]

        await until(find_ended)
        (task,) = await find_ended()
        return task, await handle.status(), await app.operations.failures()


def new_app(url: str) -> App[Any]:
    return App("shop", store="memory://", events=Events(results=(CREATED,), prefect=url))


async def test_task_is_repeated_until_the_server_has_resumed_the_run() -> None:
    with answering(Answer(500), Answer(503), WAIT, ACCEPT) as server:
        app = new_app(f"{server.url}/api")
        task, status, failures = await resumed_by(app)
        app.runtime.close()
        assert len(server.requests) == 4
    assert (task.state, task.attempt, status, failures) == ("succeeded", 4, "resumed", [])


async def test_task_waits_for_a_server_that_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    app = new_app(f"http://127.0.0.1:{port}/api")
    with ExitStack() as servers:

        def resume(api: str, flow_run: str) -> None:
            """The server starts when the first request has failed."""
            try:
                resume_flow_run(api, flow_run)
            except URLError:
                servers.enter_context(answering(ACCEPT, port=port))
                raise

        monkeypatch.setattr(resume_source, "resume_flow_run", resume)
        task, status, _ = await resumed_by(app)
        app.runtime.close()
    assert (task.state, status) == ("succeeded", "resumed")
    assert task.attempt > 1


async def test_task_for_an_unknown_run_fails_at_once_and_is_visible() -> None:
    with answering(Answer(404)) as server:
        app = new_app(f"{server.url}/api")
        task, status, failures = await resumed_by(app)
        app.runtime.close()
        assert len(server.requests) == 1
    assert (task.state, task.attempt, status) == ("failed", 1, "complete")
    assert [each.source for each in failures] == ["onthedot.resume"]
