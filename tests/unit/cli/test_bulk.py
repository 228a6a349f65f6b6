"""Acts on many tasks: asked for, paced, interrupted, taken up again. Nothing is lost, and nothing is done twice."""

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
from tests.unit.cli.conftest import Desk

pytest.importorskip("pty")
from tests.unit.cli.terminal import terminal


def cancelled(desk: Desk) -> int:
    return len(desk.app.sync.find(state="cancelled", limit=1000))


@contextmanager
def in_the_middle(desk: Desk, act: Callable[[], object]) -> Iterator[None]:
    """As soon as the first are cancelled, by the command that runs meanwhile."""

    def watch() -> None:
        wait_until(lambda: cancelled(desk) > 0)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize("form", ["text", "json"])
def test_ctrl_c_says_how_far_it_came_and_the_same_command_goes_on(desk: Desk, form: str) -> None:
    for number in range(100):
        desk.add("greet", name=str(number))
    words = ["task", "cancel", "--source", "greet", "--rate", "10/s"]
    with in_the_middle(desk, lambda: os.kill(os.getpid(), signal.SIGINT)):
        told = desk.do(*words, *(["--json"] if form == "json" else []), code=130)
    done = cancelled(desk)
    assert 0 < done < 100
    if form == "json":
        assert json.loads(told) == {"found": 100, "cancelled": done, "interrupted": True}
    else:
        assert told == (
            f"interrupted: cancelled {done} of 100, {100 - done} are as they were; the same command goes on with them\n"
        )
    assert desk.do("task", "cancel", "--source", "greet") == f"cancelled {100 - done} of {100 - done}\n"
    assert cancelled(desk) == 100


def test_a_store_that_fails_in_the_middle(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program holds the file for longer than anybody waits."""
    monkeypatch.setattr("onthedot.stores.sqlite.request_thread.PATIENCE", 0.5)
    for number in range(50):
        desk.add("greet", name=str(number))
    with closing(
        sqlite3.connect(tmp_path / "shop.db", isolation_level=None, timeout=30, check_same_thread=False)
    ) as db:
        with in_the_middle(desk, lambda: db.execute("BEGIN IMMEDIATE")):
            told = desk.do("task", "cancel", "--source", "greet", "--rate", "10/s", code=3)
        db.execute("ROLLBACK")
    found = re.search(r"(\d+) of 50 were done, and the same command goes on with the others", told)
    assert found is not None, told
    done = cancelled(desk)
    assert 0 < int(found[1]) == done < 50
    assert desk.do("task", "cancel", "--source", "greet") == f"cancelled {50 - done} of {50 - done}\n"


def test_on_a_terminal_one_is_asked(desk: Desk, tmp_path: Path) -> None:
    uuids = [desk.add("greet", name=str(number)) for number in range(250)]
    words = ["task", "cancel", "--source", "greet", "--store", desk.url]
    with terminal(tmp_path, *words) as screen:
        screen.until("cancel 250 tasks? [y/N]")
        screen.type("n\n")
        screen.until("nothing was done")
        assert screen.ended() == 1
    assert {desk.state(uuid) for uuid in uuids[:3]} == {"ready"}
    with terminal(tmp_path, *words, "--rate", "500/s") as screen:
        screen.until("[y/N]")
        screen.type("y\n")
        assert "/250" in screen.until("cancelled 250 of 250")  # the bar
        assert screen.ended() == 0
    words[1] = "retry"
    with terminal(tmp_path, *words, "--state", "cancelled", "--yes") as screen:
        assert "[y/N]" not in screen.until("retried 250 of 250")


def test_ctrl_c_at_the_question(desk: Desk, tmp_path: Path) -> None:
    uuid = desk.add("greet", name="ann")
    with terminal(tmp_path, "task", "cancel", "--source", "greet", "--store", desk.url) as screen:
        screen.until("[y/N]")
        while screen.process.poll() is None:  # one that comes just before the read begins is heard after it only
            screen.process.send_signal(signal.SIGINT)
            screen.ended(2)
        assert screen.process.returncode == 1
    assert desk.state(uuid) == "ready"


def test_none_that_match_is_no_fault(desk: Desk) -> None:
    desk.do("task", "cancel", desk.add("greet", name="ann"))
    assert desk.json("task", "cancel", "--source", "nobody") == {"found": 0, "cancelled": 0}
    assert desk.json("task", "retry", "--state", "cancelled", "--dry-run") == {"found": 1, "retried": 0}
