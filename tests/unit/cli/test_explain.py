"""``onthedot task explain`` on a real file, with and without a real worker."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner

from onthedot.cli import main
from tests.support.waits import wait_until
from tests.unit.cli.conftest import Shop, common_start


def explained(shop: Shop, *text: str, code: int = 0) -> str:
    url = f"sqlite:///{shop.folder}/shop.db"
    result = CliRunner().invoke(main, ["task", "explain", *text, "--store", url], prog_name="onthedot")
    assert result.exit_code == code, result.output
    return result.output


def as_json(shop: Shop, uuid: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(explained(shop, uuid, "--json"))
    return result


def test_explain_prints_reasons_and_holders(shop: Shop) -> None:
    first = shop.add("greet", name="ann")
    second = shop.add("greet", after=3600, name="bob")
    shop.app.sync.pause("greet", reason="deploy \x1b[31mnow")
    head, empty, *rows = explained(shop, second[:-3]).splitlines()
    assert (head, empty) == (f"{second}  greet  scheduled", "")
    assert [row.split()[0] for row in rows] == ["not_due", "source_paused", "no_worker", "behind"]
    assert rows[0].startswith("not_due        it is not due before 20")
    assert rows[1] == r"source_paused  greet is paused: deploy \x1b[31mnow"
    assert explained(shop, first).splitlines()[2:] == rows[1:3]


def test_explain_prints_json(shop: Shop) -> None:
    uuid = shop.add("greet", after=3600, name="ann")
    result = as_json(shop, uuid)
    assert list(result) == [
        "uuid", "source", "state", "reason", "text", "until", "by", "by_count", "ahead", "estimated_start", "also",
        "action",
    ]  # fmt: skip
    assert (result["uuid"], result["state"], result["reason"], result["ahead"]) == (uuid, "scheduled", "not_due", 0)
    assert [each["reason"] for each in result["also"]] == ["no_worker"]


def test_explain_of_a_missing_task_is_an_error(shop: Shop) -> None:
    both = [shop.add("greet", name="ann"), shop.add("greet", name="bob")]
    assert "no task 9999" in explained(shop, "9999", code=1)
    assert "several uuids" in explained(shop, common_start(*both), code=1)
    assert explained(shop, code=2)
    nowhere = CliRunner().invoke(main, ["task", "explain", "1", "--store", f"sqlite:///{shop.folder}/no.db"])
    assert nowhere.exit_code == 3


def test_explain_does_not_wait_for_writers(shop: Shop) -> None:
    uuid = shop.add("greet", name="ann")
    with closing(sqlite3.connect(shop.folder / "shop.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        assert as_json(shop, uuid)["reason"] == "no_worker"


def test_explain_names_the_running_and_the_killed_worker(shop: Shop) -> None:
    if not hasattr(signal, "SIGKILL"):
        pytest.skip("kills")
    worker = shop.worker("-c", "1")
    first = shop.nap("a")
    wait_until(lambda: shop.notes() == ["begin a"])
    second = shop.nap("b")
    assert as_json(shop, first)["reason"] == "running"
    result = as_json(shop, second)
    assert (result["reason"], result["text"].partition(";")[0]) == (
        "behind", "the next to start when a worker has a free slot",
    )  # fmt: skip
    other = shop.add("nobody.knows")
    assert (as_json(shop, other)["reason"], as_json(shop, other)["by_count"]) == ("unknown", 1)
    shop.app.shutdown()  # else this process would reap the dead session
    for pid in (worker.process.pid, *worker.children()):  # all at once, so that none releases its tasks
        os.kill(pid, signal.SIGKILL)
    worker.ended()
    wait_until(lambda: as_json(shop, first)["reason"] == "dead_worker")
    text = explained(shop, first)
    assert "which is dead" in text
    assert "no worker is alive" in text
    assert as_json(shop, second)["reason"] == "no_worker"
    shop.worker("-c", "2")
    wait_until(lambda: as_json(shop, first)["reason"] == "running")
