"""``onthedot batch``, and what ``onthedot doctor`` tells about batch tasks."""

from __future__ import annotations

import asyncio

import pytest

from onthedot import SyncBatch
from tests.support.waits import SOON, wait_until
from tests.unit.batches.name_tasks import Name, NameTasks
from tests.unit.cli.conftest import Console


@pytest.fixture
def tasks(console: Console) -> NameTasks:
    return NameTasks(console.app)


@pytest.fixture
def batch(console: Console, tasks: NameTasks) -> SyncBatch[Name]:
    tasks.fails = {1}
    with console.app.background():
        batch = console.app.sync.batch(tasks.names, count=50, type="character_name")
        batch.all(SOON)
    return batch


def test_batch_list_shows_items_and_parts(console: Console, batch: SyncBatch[Name]) -> None:
    head, row = console.do("batch", "list").splitlines()
    assert head.split() == ["ID", "STATE", "TASK", "TYPE", "ITEMS", "PARTS", "ADDED"]
    assert "succeeded" in row
    assert "50 of 50" in row
    assert "4 of 4, 1 failed" in row
    (found,) = console.json("batch", "list", "--task", "names", "--state", "succeeded", "--since", "1h")["batches"]
    assert (found["id"], found["task"], found["type"]) == (batch.id, "names", "character_name")
    assert found["progress"] == {"done": 4, "failed": 1, "total": 4, "items": 50, "count": 50}
    assert console.json("batch", "list", "--state", "failed")["batches"] == []


def test_batch_show_lists_parts_in_the_order_of_their_ends(console: Console, batch: SyncBatch[Name]) -> None:
    details = console.json("batch", "show", batch.id[-8:])["batch"]
    assert [part["number"] for part in details["parts"]] == [1, 2, 3, 4]
    (failed,) = [part for part in details["parts"] if part["error"]]
    assert (failed["index"], failed["items"], failed["error"]) == (1, 0, "ValueError: no part 1")
    assert details["parts"][-1]["refused"] == {"surplus": 10}
    text = console.do("batch", "show", batch.id)
    assert "50 of 50" in text
    assert "ValueError: no part 1" in text
    assert "10 surplus" in text


def test_batch_show_says_what_a_live_batch_waits_for(console: Console, tasks: NameTasks) -> None:
    tasks.gate = asyncio.Event()
    with console.app.background():
        batch = console.app.sync.batch(tasks.names, count=5, type="item")
        wait_until(lambda: tasks.runs)
        wait_until(lambda: "waits" in console.do("batch", "show", batch.id))
        text = console.json("batch", "show", batch.id)["batch"]["waits"]
        assert text.startswith("it waits for the next of 1 part of its batch: 1 runs (names ")
        assert console.do("batch", "cancel", batch.id, "--reason", "not needed") == "cancelled 2 tasks\n"
        assert console.state(batch.id) == "cancelled"
    assert console.do("batch", "cancel", batch.id) == "cancelled 0 tasks\n"


def test_flow_list_has_no_batches(console: Console, batch: SyncBatch[Name]) -> None:
    assert console.json("flow", "list")["flows"] == []


def test_modes_are_set_and_ended(console: Console, batch: SyncBatch[Name]) -> None:
    assert console.do("batch", "freeze", "names") == "froze names: it accepts no new batches\n"
    assert console.do("batch", "freeze", "names") == "names was frozen already\n"
    assert console.do("batch", "thaw", "names") == "thawed names: it accepts batches\n"
    assert console.do("batch", "thaw", "names") == "names was not frozen\n"
    assert console.do("batch", "degrade", "names") == "degraded names: new batches have one part\n"
    assert console.json("batch", "degrade", "names") == {"task": "names", "mode": "degraded", "before": True}
    assert console.do("batch", "restore", "names") == "restored names: new batches are split\n"
    assert console.do("batch", "restore", "names") == "names was not degraded\n"


def test_drain_ends_with_124_while_a_batch_lives(console: Console, tasks: NameTasks) -> None:
    tasks.gate = asyncio.Event()
    with console.app.background():
        batch = console.app.sync.batch(tasks.names, count=5, type="item")
        wait_until(lambda: tasks.runs)
        assert "names has 1 batches that have not ended" in console.do(
            "batch", "drain", "names", "--timeout", "1s", code=124
        )
        batch.cancel()
    assert console.do("batch", "drain", "names") == "drained names: it is frozen, and no batch is left\n"


@pytest.mark.parametrize("verb", ["freeze", "thaw", "drain", "degrade", "restore"])
def test_unknown_task_is_refused(console: Console, batch: SyncBatch[Name], verb: str) -> None:
    assert "no task 'name' with batches here; did you mean 'names'?" in console.do("batch", verb, "name", code=1)


def test_task_of_another_kind_is_no_batch(console: Console, batch: SyncBatch[Name]) -> None:
    other = console.add("greet", name="ann")
    assert "is a task of greet and no batch" in console.do("batch", "show", other, code=1)


def test_doctor_names_frozen_and_degraded_tasks(console: Console, batch: SyncBatch[Name]) -> None:
    console.do("batch", "freeze", "names")
    text = console.do("doctor", code=1)
    assert "names accepts no new batches; 0 batches not ended" in text
    assert "onthedot batch thaw names" in text
    console.do("batch", "degrade", "names")
    text = console.do("doctor", code=1)
    assert "names makes new batches in one part" in text
    assert "onthedot batch restore names" in text
    console.do("batch", "restore", "names")
    assert "new batches" not in console.do("doctor", code=1)
