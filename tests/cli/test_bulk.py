"""Acts on many tasks: asked for, paced, interrupted, taken up again. Nothing is lost, and nothing is done twice."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Desk, Shop
from tests.waiting import wait_until

pytest.importorskip("pty")
from tests.cli.terminal import terminal


def cancelled(shop: Shop) -> int:
    return len(shop.app.sync.find(state="cancelled", limit=1000))


@pytest.mark.parametrize("form", ["text", "json"])
def test_ctrl_c_says_how_far_it_came_and_the_same_command_goes_on(shop: Shop, form: str) -> None:
    for number in range(100):
        shop.add("greet", name=str(number))
    words = ["task", "cancel", "--source", "greet", "--store", "sqlite:///shop.db"]
    running = shop.start(*words, "--rate", "10/s", *(["--json"] if form == "json" else []))
    wait_until(lambda: cancelled(shop) > 0, 20)
    running.tell(signal.SIGINT)
    assert running.ended() == 130
    done = cancelled(shop)
    assert 0 < done < 100
    if form == "json":
        assert json.loads(running.text) == {"found": 100, "cancelled": done, "interrupted": True}
    else:
        assert running.text == (
            f"interrupted: cancelled {done} of 100, {100 - done} are as they were; the same command goes on with them\n"
        )
    assert shop.do("task", "cancel", "--source", "greet") == f"cancelled {100 - done} of {100 - done}"
    assert cancelled(shop) == 100


def test_a_store_that_fails_in_the_middle(shop: Shop) -> None:
    for number in range(30):
        shop.add("greet", name=str(number))
    running = shop.start("task", "cancel", "--source", "greet", "--rate", "10/s", "--store", "sqlite:///shop.db")
    wait_until(lambda: cancelled(shop) > 0, 20)
    with closing(sqlite3.connect(shop.folder / "shop.db", isolation_level=None, timeout=30)) as db:
        db.execute("BEGIN IMMEDIATE")
        assert running.ended() == 3
        db.execute("ROLLBACK")
    found = re.search(r"(\d+) of 30 were done, and the same command goes on with the others", running.text)
    assert found is not None, running.text
    done = cancelled(shop)
    assert int(found[1]) == done
    assert shop.do("task", "cancel", "--source", "greet") == f"cancelled {30 - done} of {30 - done}"


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
    with terminal(
        tmp_path, "task", "retry", "--source", "greet", "--state", "cancelled", "-y", "--store", desk.url
    ) as screen:
        assert "[y/N]" not in screen.until("retried 250 of 250")


def test_ctrl_c_at_the_question(desk: Desk, tmp_path: Path) -> None:
    uuid = desk.add("greet", name="ann")
    with terminal(tmp_path, "task", "cancel", "--source", "greet", "--store", desk.url) as screen:
        screen.until("[y/N]")
        screen.process.send_signal(signal.SIGINT)
        assert screen.ended() == 1
    assert desk.state(uuid) == "ready"


def test_of_named_ones_nobody_is_asked_and_one_that_moves_is_done_once(desk: Desk, tmp_path: Path) -> None:
    uuid = desk.add("greet", name="ann")
    with terminal(tmp_path, "task", "cancel", uuid, "--store", desk.url) as screen:
        assert "[y/N]" not in screen.until("cancelled 1 of 1")
    assert desk.json("task", "cancel", "--source", "nobody") == {"found": 0, "cancelled": 0}
    assert desk.json("task", "retry", "--state", "cancelled", "--dry-run") == {"found": 1, "retried": 0}
