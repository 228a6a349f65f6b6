"""Bulk actions: confirmed, paced, interrupted and continued; no task is skipped or changed twice."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.waits import wait_until
from tests.unit.cli.conftest import Console

pytest.importorskip("pty")
from tests.unit.cli.terminal import terminal


def cancelled(console: Console) -> int:
    return len(console.app.sync.find(state="cancelled", limit=1000))


@contextmanager
def in_the_middle(console: Console, act: Callable[[], object]) -> Iterator[None]:
    """Interrupt the running command as soon as it has cancelled some tasks."""

    def watch() -> None:
        wait_until(lambda: cancelled(console) > 0)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize("form", ["text", "json"])
def test_interrupted_cancel_is_continued_by_the_same_command(console: Console, form: str) -> None:
    for number in range(100):
        console.add("greet", name=str(number))
    text = ["task", "cancel", "--source", "greet", "--rate", "10/s"]
    with in_the_middle(console, lambda: os.kill(os.getpid(), signal.SIGINT)):
        result = console.do(*text, *(["--json"] if form == "json" else []), code=130)
    done = cancelled(console)
    assert 0 < done < 100
    if form == "json":
        assert json.loads(result) == {"found": 100, "cancelled": done, "interrupted": True}
    else:
        assert result == (
            f"interrupted: cancelled {done} of 100, {100 - done} are as they were; the same command goes on with them\n"
        )
    assert console.do("task", "cancel", "--source", "greet") == f"cancelled {100 - done} of {100 - done}\n"
    assert cancelled(console) == 100


def test_store_error_in_a_bulk_action_reports_the_progress(
    console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program locks the file for longer than the store waits."""
    monkeypatch.setattr("onthedot.stores.sqlite.request_thread.PATIENCE", 0.5)
    for number in range(50):
        console.add("greet", name=str(number))
    with closing(
        sqlite3.connect(tmp_path / "shop.db", isolation_level=None, timeout=30, check_same_thread=False)
    ) as db:
        with in_the_middle(console, lambda: db.execute("BEGIN IMMEDIATE")):
            result = console.do("task", "cancel", "--source", "greet", "--rate", "10/s", code=3)
        db.execute("ROLLBACK")
    found = re.search(r"(\d+) of 50 were done, and the same command goes on with the others", result)
    assert found is not None, result
    done = cancelled(console)
    assert 0 < int(found[1]) == done < 50
    assert console.do("task", "cancel", "--source", "greet") == f"cancelled {50 - done} of {50 - done}\n"


def test_bulk_action_asks_first_at_a_terminal(console: Console, tmp_path: Path) -> None:
    uuids = [console.add("greet", name=str(number)) for number in range(250)]
    text = ["task", "cancel", "--source", "greet", "--store", console.url]
    with terminal(tmp_path, *text) as screen:
        screen.until("cancel 250 tasks? [y/N]")
        screen.type("n\n")
        screen.until("nothing was done")
        assert screen.ended() == 1
    assert {console.state(uuid) for uuid in uuids[:3]} == {"ready"}
    with terminal(tmp_path, *text, "--rate", "500/s") as screen:
        screen.until("[y/N]")
        screen.type("y\n")
        assert "/250" in screen.until("cancelled 250 of 250")  # the progress bar
        assert screen.ended() == 0
    text[1] = "retry"
    with terminal(tmp_path, *text, "--state", "cancelled", "--yes") as screen:
        assert "[y/N]" not in screen.until("retried 250 of 250")


def test_ctrl_c_at_the_question_changes_nothing(console: Console, tmp_path: Path) -> None:
    uuid = console.add("greet", name="ann")
    with terminal(tmp_path, "task", "cancel", "--source", "greet", "--store", console.url) as screen:
        screen.until("[y/N]")
        while screen.process.poll() is None:  # a signal just before the read takes effect after it
            screen.process.send_signal(signal.SIGINT)
            screen.ended(2)
        screen.until("onthedot: interrupted: nothing was done")
        assert screen.process.returncode == 130
    assert console.state(uuid) == "ready"


def test_bulk_action_without_a_match_succeeds(console: Console) -> None:
    console.do("task", "cancel", console.add("greet", name="ann"))
    assert console.json("task", "cancel", "--source", "nobody") == {"found": 0, "cancelled": 0}
    assert console.json("task", "retry", "--state", "cancelled", "--dry-run") == {"found": 1, "retried": 0}


def test_named_task_that_cannot_be_retried_is_exit_code_1(console: Console) -> None:
    uuid = console.add("greet", name="ann")
    console.work(uuid)
    text = console.do("task", "retry", uuid, code=1)
    assert text.startswith("retried 0 of 1; left as they are: 1 succeeded\n")
    assert "none was retried: retry changes tasks that are failed or cancelled; `onthedot task show` says more" in text


def test_retry_of_tasks_that_have_not_failed_leaves_them_and_gives_their_states(console: Console) -> None:
    ready = console.add("greet", name="ann")
    over = console.add("greet", name="bob")
    console.do("task", "cancel", over)
    assert console.do("task", "retry", ready, code=1).startswith("retried 0 of 1; left as they are: 1 ready\n")
    assert console.do("task", "retry", ready, over, over) == "retried 1 of 2; left as they are: 1 ready\n"
    assert console.json("task", "retry", ready, over, code=1) == {"found": 2, "retried": 0}


def test_filter_for_a_state_that_rules_the_change_out_changes_nothing(console: Console) -> None:
    console.add("greet", name="ann")
    assert console.do("task", "retry", "--state", "ready") == "retried 0 of 1; left as they are: 1 ready\n"
    found = console.do("task", "retry", "--state", "ready", "--dry-run")
    assert found == "0 would be retried; left as they are: 1 ready\n"


def test_question_about_one_task_is_in_the_singular(console: Console, tmp_path: Path) -> None:
    uuid = console.add("greet", name="ann")
    console.do("task", "cancel", uuid)
    with terminal(tmp_path, "task", "retry", "--state", "cancelled", "--store", console.url) as screen:
        screen.until("retry 1 task? [y/N]")
        screen.type("y\n")
        screen.until("retried 1 of 1")
        assert screen.ended() == 0
    assert console.state(uuid) == "ready"
