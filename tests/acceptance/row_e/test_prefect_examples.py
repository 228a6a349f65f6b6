"""The flow of the page about Prefect and the flow of the example, in the environment of Prefect."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from onthedot import App
from onthedot.events import Event, Events
from tests.acceptance.row_e.event_systems import CREATED, FAILED, REQUESTED
from tests.acceptance.row_e.flow_programs import PATIENCE
from tests.acceptance.row_e.test_genesis import genesis
from tests.support.documents.blocks import read_blocks
from tests.support.services.prefect import PrefectServer
from tests.support.services.prefect_environment import settings
from tests.support.source_files import ROOT

pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "how-to" / "prefect.md"
STORE = "postgresql://…"  # of the page
RUN = """

import asyncio, json, sys

print("answer:", json.dumps(asyncio.run(details("s-1", "cmd-1", 3))))
"""
COUNT = 20


def run_in_prefect(server: PrefectServer, folder: Path, *command: str, **more: str) -> str:
    """A program in the environment of Prefect; returns its output."""
    home = folder / "prefect"
    home.mkdir()
    ran = subprocess.run(
        [str(server.environment.python), *command],
        env=settings(home, PREFECT_API_URL=server.api, PYTHONPATH=f"{ROOT}:{ROOT / 'src'}", **more),
        cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def states(server: PrefectServer, flow: str) -> list[str]:
    """Of the newest run of the flow, in order."""
    wanted = {"flows": {"name": {"any_": [flow]}}, "sort": "START_TIME_DESC", "limit": 1}
    ((run,),) = [server.request("POST", "/flow_runs/filter", wanted)[1]]
    found = server.request("GET", f"/flow_run_states/?flow_run_id={run['id']}")[1]
    return [state["type"] for state in sorted(found, key=lambda state: state["timestamp"])]


async def test_flow_of_the_page_gets_the_answers_of_agents(prefect: PrefectServer, tmp_path: Path) -> None:
    (block,) = [each for each in read_blocks(PAGE) if each.language == "python"]
    store = f"sqlite:///{tmp_path}/genesis.db"
    assert STORE in block.text
    (tmp_path / "page_flow.py").write_text(block.text.replace(STORE, store) + RUN)
    app = App("genesis", store=store, events=Events(results=(CREATED, FAILED), prefect=prefect.api))

    @app.agent("worldbuilder", consumes=(REQUESTED,), fails_as=FAILED)
    async def worldbuilder(event: Event[dict[str, Any]]) -> Event[Any]:
        return event.reply(CREATED, {"part": event.payload["part"], "session_id": event.payload["session_id"]})

    async with app.running():
        output = await asyncio.to_thread(run_in_prefect, prefect, tmp_path, "page_flow.py")
        assert await app.resume_handle("cmd-1").status() == "resumed"
    app.runtime.close()
    (line,) = [line for line in output.splitlines() if line.startswith("answer: ")]
    answers = json.loads(line.removeprefix("answer: "))
    assert sorted(each["part"] for each in answers) == [0, 1, 2]
    assert {each["session_id"] for each in answers} == {"s-1"}
    assert states(prefect, "genesis_detail_batch_flow")[-1] == "COMPLETED"
    assert "PAUSED" in states(prefect, "genesis_detail_batch_flow")


def test_flow_of_the_example_prints_all_items(prefect: PrefectServer, tmp_path: Path) -> None:
    with genesis(tmp_path, prefect=prefect.api):
        output = run_in_prefect(
            prefect, tmp_path, "-m", "examples.genesis.flow", "s-1", "character_name", str(COUNT),
            ONTHEDOT_STORE=f"sqlite:///{tmp_path}/genesis.db",
        )  # fmt: skip
    assert len(output.splitlines()) == COUNT, output
    assert states(prefect, "genesis_detail_batch_flow")[-1] == "COMPLETED"
