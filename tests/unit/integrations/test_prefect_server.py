"""The Prefect server of the tests: it answers, and keeps its runs over a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from onthedot import App, Expired
from onthedot.events import Events
from tests.support.services import prefect_environment, programs
from tests.support.services.prefect import PrefectServer, find
from tests.support.waits import until

pytestmark = pytest.mark.once


def new_run(prefect: PrefectServer) -> str:
    """The id of a run of a flow without code."""
    status, flow = prefect.request("POST", "/flows/", {"name": "greet"})
    assert status in (200, 201)
    status, run = prefect.request("POST", "/flow_runs/", {"flow_id": flow["id"], "state": {"type": "RUNNING"}})
    assert status == 201
    return str(run["id"])


def test_runs_are_kept_over_a_restart(prefect: PrefectServer) -> None:
    run = new_run(prefect)
    prefect.stop()
    with pytest.raises(OSError):
        prefect.request("GET", "/health")
    assert prefect.start()
    status, found = prefect.request("GET", f"/flow_runs/{run}")
    assert status == 200
    assert found["state"]["type"] == "RUNNING"


def test_paused_run_is_resumed_once(prefect: PrefectServer) -> None:
    run = new_run(prefect)
    paused = {"state": {"type": "PAUSED", "state_details": {"pause_key": "k1", "pause_reschedule": False}}}
    assert prefect.request("POST", f"/flow_runs/{run}/set_state", paused)[1]["status"] == "ACCEPT"
    answers = [prefect.request("POST", f"/flow_runs/{run}/resume")[1]["status"] for _ in range(2)]
    assert answers == ["ACCEPT", "ABORT"]


async def test_run_is_resumed_when_its_handle_has_expired(prefect: PrefectServer) -> None:
    run = new_run(prefect)
    paused = {"state": {"type": "PAUSED", "state_details": {"pause_key": "k1", "pause_reschedule": False}}}
    assert prefect.request("POST", f"/flow_runs/{run}/set_state", paused)[1]["status"] == "ACCEPT"
    app = App("shop", store="memory://", events=Events(results=("Shop.Part.Created",), prefect=prefect.api))

    def state() -> str:
        return str(prefect.request("GET", f"/flow_runs/{run}")[1]["state"]["type"])

    async with app.running():
        handle = await app.expect({"Shop.Part.Created": 1}, correlation_id="c1", timeout=0.5, wakes=f"prefect:{run}")
        await until(lambda: state() == "RUNNING")
        with pytest.raises(Expired):
            await handle.wait()


@pytest.mark.parametrize("required", [False, True])
def test_environment_that_cannot_be_made_is_a_skip_or_a_failure(
    required: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(prefect_environment, "PLACE", tmp_path)
    monkeypatch.setattr(prefect_environment, "REQUIREMENTS", ("onthedot-no-such-package==1",))
    monkeypatch.setattr(programs, "required", required)
    monkeypatch.delenv("ONTHEDOT_TEST_PREFECT_PYTHON", raising=False)
    monkeypatch.setattr("tests.support.services.prefect.environment", prefect_environment.environment.__wrapped__)
    outcome = pytest.fail.Exception if required else pytest.skip.Exception
    with pytest.raises(outcome, match=r"(?s)Prefect cannot be installed: .*onthedot-no-such-package"):
        next(find())
    assert not (tmp_path / "done").exists()
