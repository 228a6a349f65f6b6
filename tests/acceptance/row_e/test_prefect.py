"""A Prefect flow run that waits for events, paused or suspended, on a real server."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import time
from pathlib import Path

import pytest

from onthedot import App
from onthedot.events import Event, Events
from tests.acceptance.row_e.flow_programs import PATIENCE, flow_program
from tests.support.counting_proxy import CountingProxy, counting_proxy
from tests.support.services.prefect import PrefectServer
from tests.support.services.prefect_environment import settings
from tests.support.source_files import ROOT
from tests.support.waits import until, wait_until

pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]

CREATED = "Shop.Part.Created"
QUIET = 12.0  # seconds: Prefect's own pause reads the state every 10 s


def test_paused_flow_sends_no_request_until_it_is_resumed(prefect: PrefectServer, tmp_path: Path) -> None:
    with (
        counting_proxy(prefect.port) as proxy,
        flow_program(prefect, tmp_path, "run", "k1", port=proxy.port) as program,
    ):
        program.wait_for_notes("status")
        assert program.state() == "PAUSED"
        wait_until_quiet(proxy)
        seen = len(proxy.requests)
        time.sleep(QUIET)  # what does not happen can only be waited for
        assert proxy.texts(seen) == []
        program.complete("k1", ["a", "b"])
        assert program.resume() == "ACCEPT"
        assert program.resume() == "ABORT"
        program.wait_for_notes("result")
        reads = proxy.texts(seen).count(f"GET /api/flow_runs/{program.run}")
        assert 1 <= reads <= 20, "only after the event of the resume, which may be earlier than the commit of the state"
        assert program.wait_for_end() == 0
        assert program.results() == [["a", "b"]]
        assert program.state() == "COMPLETED"


def wait_until_quiet(proxy: CountingProxy) -> None:
    """Until nothing has passed for a second."""
    before = -1
    while before != len(proxy.requests):
        before = len(proxy.requests)
        time.sleep(1)


@pytest.mark.parametrize("early", [False, True])
async def test_result_events_resume_the_flow(prefect: PrefectServer, tmp_path: Path, early: bool) -> None:
    """Published events → callback service → handle → the task onthedot.resume → the paused flow."""
    events = Events(results=(CREATED,), prefect=prefect.api)
    app = App("shop", store=f"sqlite:///{tmp_path}/shop.db", events=events)
    with flow_program(prefect, tmp_path, "expect") as program:
        async with app.running():
            if early:
                await app.publish(created(1), created(2))
            await asyncio.to_thread(program.wait_for_notes, "handle")
            if not early:
                await until(lambda: program.state() == "PAUSED", PATIENCE)
                await app.publish(created(1), created(2))
            assert (await asyncio.to_thread(program.wait_for_notes, "result")).value == [1, 2]
            assert await asyncio.to_thread(program.wait_for_end) == 0, program.output()
            assert await app.resume_handle("c1").status() == "resumed"
    assert program.state() == "COMPLETED"
    app.runtime.close()


def created(number: int) -> Event:
    return Event(CREATED, {"n": number}, aggregate_id=str(number), correlation_id="c1")


@pytest.mark.timed
def test_flow_goes_on_within_a_second(prefect: PrefectServer, tmp_path: Path) -> None:
    with flow_program(prefect, tmp_path, "run", "k1", "k2", "k3") as program:
        for count, key in enumerate(("k1", "k2", "k3"), 1):
            program.wait_for_notes("status", count)
            program.complete(key)
            resumed_at = time.time()
            program.resume()
            assert program.wait_for_notes("result", count).at - resumed_at < 1
        assert program.wait_for_end() == 0


@pytest.mark.timed
async def test_flow_goes_on_within_a_second_of_the_last_event(prefect: PrefectServer, tmp_path: Path) -> None:
    """From `publish` over relay, callback service and the task onthedot.resume to the code behind `wait_for`."""
    app = App("shop", store=f"sqlite:///{tmp_path}/shop.db", events=Events(results=(CREATED,), prefect=prefect.api))
    with flow_program(prefect, tmp_path, "expect") as program:
        async with app.running():
            await until(lambda: bool(program.notes("handle")) and program.state() == "PAUSED", PATIENCE)
            await app.publish(created(1))
            published_at = time.time()
            await app.publish(created(2))
            result = await asyncio.to_thread(program.wait_for_notes, "result")
            assert result.at - published_at < 1
            assert await asyncio.to_thread(program.wait_for_end) == 0, program.output()
    app.runtime.close()


def test_handle_that_is_complete_before_the_pause_resumes_the_run_once(prefect: PrefectServer, tmp_path: Path) -> None:
    """The task has sent its request before the pause, and was refused: nobody else resumes the run."""
    (tmp_path / "k1").write_text('"early"')
    with flow_program(prefect, tmp_path, "run", "k1", "k1") as program:
        assert program.wait_for_end() == 0, program.output()
        assert program.results() == ["early", "early"]
        states = [state for state in program.states() if state in ("PAUSED", "RUNNING")]
        assert states == ["RUNNING", "PAUSED", "RUNNING"]  # it pauses once for a handle


def test_run_that_a_person_resumes_waits_for_its_handle(prefect: PrefectServer, tmp_path: Path) -> None:
    with flow_program(prefect, tmp_path, "run", "k1") as program:
        program.wait_for_notes("status")
        program.resume()
        wait_until(lambda: program.state() == "RUNNING", PATIENCE)
        program.complete("k1")
        assert program.wait_for_end() == 0, program.output()
        assert program.results() == ["done"]


def test_server_that_restarts_during_the_pause_loses_no_resumption(prefect: PrefectServer, tmp_path: Path) -> None:
    with flow_program(prefect, tmp_path, "run", "k1") as program:
        program.wait_for_notes("status")
        prefect.stop()
        assert prefect.start()
        assert program.state() == "PAUSED"
        program.complete("k1")
        program.resume()
        assert program.wait_for_end() == 0, program.output()
        assert program.results() == ["done"]


def test_broken_subscription_is_renewed_with_one_read(prefect: PrefectServer, tmp_path: Path) -> None:
    with (
        counting_proxy(prefect.port) as proxy,
        flow_program(prefect, tmp_path, "run", "k1", "k2", port=proxy.port) as program,
    ):
        program.wait_for_notes("status")
        read = f"GET /api/flow_runs/{program.run}"
        seen = len(proxy.requests)
        for count in (1, 2):
            proxy.cut()
            wait_until(functools.partial(proxy.has_seen, read, count, since=seen), PATIENCE)
            wait_until_quiet(proxy)  # a read whose answer is cut off would be sent again
        time.sleep(3)  # more than twenty reads would take
        assert proxy.texts(seen).count(read) == 2
        assert proxy.texts(seen).count("GET /api/events/out") == 2
        program.complete("k1")
        program.resume()
        program.wait_for_notes("status", 2)
        # A resumption that no subscription sees is found by the read.
        program.complete("k2")
        proxy.cut()
        assert program.resume() == "ACCEPT"
        assert program.wait_for_end() == 0, program.output()
        assert program.results() == ["done", "done"]


def test_run_that_is_cancelled_during_the_pause_ends(prefect: PrefectServer, tmp_path: Path) -> None:
    with flow_program(prefect, tmp_path, "run", "k1") as program:
        program.wait_for_notes("status")
        answer = prefect.request(
            "POST", f"/flow_runs/{program.run}/set_state", {"state": {"type": "CANCELLED"}, "force": True}
        )
        assert answer[1]["status"] == "ACCEPT"
        assert program.wait_for_end() != 0
        assert "was waiting for events" in program.output()
        assert program.results() == []
        assert program.state() == "CANCELLED"


def test_suspended_run_ends_its_process_and_goes_on_in_another(prefect: PrefectServer, tmp_path: Path) -> None:
    (tmp_path / "k1").write_text('"early"')
    with flow_program(prefect, tmp_path, "serve", PREFECT_RUNNER_POLL_FREQUENCY="1") as program:
        wait_until(lambda: prefect.request("GET", "/deployments/name/waits/suspended")[0] == 200, PATIENCE)
        deployment = prefect.request("GET", "/deployments/name/waits/suspended")[1]["id"]
        parameters = {"folder": str(tmp_path), "keys": ["k1", "k2"], "suspend": True}
        answer = prefect.request(
            "POST",
            f"/deployments/{deployment}/create_flow_run",
            {"parameters": parameters, "state": {"type": "SCHEDULED"}},
        )
        run = str(answer[1]["id"])
        # k1 is complete before: the run resumes itself, and starts again in a second process.
        second = program.wait_for_notes("run", 2)
        first = program.notes("run")[0]
        assert second.pid != first.pid
        program.wait_for_end_of(first.pid)
        # It waits for k2 without a process.
        wait_until(lambda: [note.value for note in program.notes("status")] == ["k1", "k2"], PATIENCE)
        program.wait_for_end_of(second.pid)
        assert program.state(run) == "PAUSED"
        program.complete("k2", "late")
        assert program.resume(run) == "ACCEPT"
        third = program.wait_for_notes("run", 3)
        assert third.pid not in (first.pid, second.pid)
        wait_until(lambda: program.state(run) == "COMPLETED", PATIENCE)
        assert program.results() == ["early", "early", "late"]


def test_outside_of_a_flow_there_is_no_run(prefect: PrefectServer, tmp_path: Path) -> None:
    ran = subprocess.run(
        [str(prefect.environment.python), "-c", "from onthedot.integrations.prefect import prefect_run; prefect_run()"],
        env=settings(tmp_path, PYTHONPATH=str(ROOT / "src")), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "RuntimeError: no flow run: prefect_run() and wait_for() are called inside a Prefect flow" in ran.stderr
