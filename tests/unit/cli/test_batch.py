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
    assert "surplus: 10" in text


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
    assert "not needed" in console.do("batch", "show", batch.id)
    assert console.do("batch", "list").rstrip().endswith("not needed")


def test_batch_show_names_the_tasks_of_parts(console: Console, batch: SyncBatch[Name]) -> None:
    parts = console.json("batch", "show", batch.id)["batch"]["parts"]
    for part in parts:
        task = console.json("task", "show", part["uuid"])
        assert task["metadata"]["subtask_id"] == f"{batch.id}:character_name:{part['index']}"
    head, *rows = console.do("batch", "show", batch.id).split("\n\n")[1].splitlines()
    assert head.split()[:4] == ["NUMBER", "INDEX", "TASK", "ITEMS"]
    for part, row in zip(parts, rows, strict=True):
        assert part["uuid"].endswith(row.split()[2])


def test_degraded_batch_is_marked(console: Console, tasks: NameTasks) -> None:
    console.app.sync.batches.degrade("names")
    with console.app.background():
        batch = console.app.sync.batch(tasks.names, count=5, type="item")
        batch.all(SOON)
    assert "degraded" in console.do("batch", "show", batch.id)
    _, row, mode = console.do("batch", "list").splitlines()
    assert row.rstrip().endswith("degraded")
    assert mode == "names is degraded: new batches have one part"
    assert console.json("batch", "list")["batches"][0]["degraded"]


def test_batch_list_names_frozen_tasks(console: Console, batch: SyncBatch[Name]) -> None:
    console.do("batch", "freeze", "names")
    assert console.do("batch", "list").splitlines()[-1] == "names is frozen: it accepts no new batches"
    assert console.json("batch", "list", "--task", "names")["modes"] == [{"task": "names", "mode": "frozen", "live": 0}]
    assert console.json("batch", "list", "--task", "others")["modes"] == []


@pytest.mark.parametrize("verb", ["show", "cancel"])
def test_unknown_id_is_no_batch(console: Console, batch: SyncBatch[Name], verb: str) -> None:
    assert "no batch nope: " in console.do("batch", verb, "nope", code=1)


def test_task_list_shows_what_a_batch_was_asked_for(console: Console, batch: SyncBatch[Name]) -> None:
    line = console.do("task", "list", "--source", "names:batch").splitlines()[-1]
    assert line.rstrip().endswith("type='character_name', count=50")
    text = console.do("task", "show", batch.id)
    assert '{"type":"character_name","count":50}' in text
    assert "digest" in console.json("task", "show", batch.id)["args"]


def test_task_retry_runs_the_parts_of_a_cancelled_batch(console: Console, tasks: NameTasks) -> None:
    tasks.gate = asyncio.Event()
    with console.app.background():
        batch = console.app.sync.batch(tasks.names, count=5, type="item")
        wait_until(lambda: tasks.runs)
        batch.cancel()
        tasks.gate = None
        assert console.do("task", "retry", batch.id) == "retried 1 of 1\n"
        assert len(batch.all(SOON).items) == 5


def test_flow_list_has_no_batches(console: Console, batch: SyncBatch[Name]) -> None:
    assert console.json("flow", "list")["flows"] == []


def test_flow_show_counts_the_parts_of_a_batch(console: Console, batch: SyncBatch[Name]) -> None:
    parts = batch.progress().total
    shown = console.do("flow", "show", batch.id)
    assert f"progress   {parts + 1} of {parts + 1} ended" in shown


def test_modes_are_set_and_ended(console: Console, batch: SyncBatch[Name]) -> None:
    assert console.do("batch", "freeze", "names") == "froze names: it accepts no new batches\n"
    assert console.do("batch", "freeze", "names") == "names was frozen already\n"
    assert console.do("batch", "thaw", "names") == "thawed names: it accepts batches\n"
    assert console.do("batch", "thaw", "names") == "names was not frozen\n"
    assert console.do("batch", "degrade", "names") == "degraded names: new batches have one part\n"
    assert console.json("batch", "degrade", "names") == {
        "task": "names", "mode": "degraded", "before": True, "replaced": "",
    }  # fmt: skip
    assert console.do("batch", "restore", "names") == "restored names: new batches are split\n"
    assert console.do("batch", "restore", "names") == "names was not degraded\n"


def test_new_mode_names_the_one_that_it_ends(console: Console, batch: SyncBatch[Name]) -> None:
    console.do("batch", "freeze", "names")
    assert console.do("batch", "degrade", "names") == (
        "degraded names: new batches have one part; this ended its freeze\n"
    )
    assert console.json("batch", "freeze", "names") == {
        "task": "names", "mode": "frozen", "before": False, "replaced": "degraded",
    }  # fmt: skip
    console.do("batch", "degrade", "names")
    assert console.do("batch", "freeze", "names") == (
        "froze names: it accepts no new batches; this ended its degraded mode\n"
    )
    console.do("batch", "degrade", "names")
    assert console.do("batch", "drain", "names") == (
        "drained names: it is frozen, and no batch is left; this ended its degraded mode\n"
    )


def test_drain_ends_with_124_while_a_batch_lives(console: Console, tasks: NameTasks) -> None:
    tasks.gate = asyncio.Event()
    with console.app.background():
        batch = console.app.sync.batch(tasks.names, count=5, type="item")
        wait_until(lambda: tasks.runs)
        assert "names has 1 batch that has not ended" in console.do(
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
