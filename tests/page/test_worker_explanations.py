"""Reasons that begin or end with a worker, on the page of a task in Chromium: shown, and gone with their cause."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.conftest import Shop, Watched, watched_tab
from tests.page.screen_delay import api
from tests.page.test_explanations import LONG, WATCH, check_delay, explanation, fill, show
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Without a worker."""
    found = Shop(tmp_path, HERE / "held_shop.py", "held")
    fill(found, "make_one", tmp_path)  # a page is refused without anything of its app
    with found.page():
        yield found


@pytest.fixture
def tab(chromium: Browser, shop: Shop) -> Iterator[Watched]:
    with watched_tab(chromium, shop) as watched:
        yield watched


def await_words(tab: Watched, words: str) -> None:
    """On the page that is open."""
    tab.page.wait_for_selector(f".explain:has-text({words!r})", timeout=LONG)


def started(shop: Shop, uuid: str) -> float:
    """When the task that runs began to run, in seconds since the epoch."""
    return seconds(api(shop, f"/tasks/{uuid}")["started_at"])


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def live_workers(shop: Shop) -> list[dict[str, Any]]:
    """The oldest first."""
    found = [worker for worker in api(shop, "/workers")["items"] if worker["alive"]]
    return sorted(found, key=lambda worker: str(worker["since"]))


def kill_everything(shop: Shop, supervisor: int) -> None:
    """As when the machine loses power: nobody is left who could report it."""
    (worker,) = live_workers(shop)
    for pid in (supervisor, worker["pid"]):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.timed
def test_source_that_a_new_worker_knows_is_no_longer_unknown_after_a_second(
    tab: Watched, shop: Shop, tmp_path: Path
) -> None:
    words = "the only live worker does not know archive"
    with shop.worker():
        uuid = fill(shop, "add_unknown", tmp_path)
        show(tab, shop, uuid, words)
        tab.page.evaluate(WATCH, words)
        with shop.worker(program=HERE / "archive_shop.py"):
            check_delay(tab, seconds(live_workers(shop)[-1]["since"]))
            tab.page.wait_for_selector(".task-title .state-succeeded", timeout=LONG)


@pytest.mark.timed
def test_misspelt_source_is_no_reason_a_second_after_its_task_was_cancelled(
    tab: Watched, shop: Shop, tmp_path: Path
) -> None:
    words = "does not know mak; did you mean 'make'?"
    with shop.worker():
        uuid = fill(shop, "misspell", tmp_path)
        show(tab, shop, uuid, words)
        tab.page.evaluate(WATCH, words)
        api(shop, f"/tasks/{uuid}/cancel", {})
        wait_until(lambda: api(shop, f"/tasks/{uuid}")["state"] == "cancelled")
        check_delay(tab, seconds(api(shop, f"/tasks/{uuid}")["ended_at"]))


@pytest.mark.timed
def test_death_of_the_worker_of_a_task_is_shown_until_another_worker_runs_it(
    tab: Watched, shop: Shop, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    words = "which is dead: requeued at a worker's next turn"
    with shop.worker() as supervisor:
        uuid = fill(shop, "run_until", gate)
        show(tab, shop, uuid, "runs on worker")
        kill_everything(shop, supervisor)
        await_words(tab, words)
        await_words(tab, "no worker is alive; start one: onthedot worker")
    assert explanation(shop, uuid)["reason"] == "dead_worker"
    tab.page.evaluate(WATCH, words)
    with shop.worker():
        wait_until(lambda: api(shop, f"/tasks/{uuid}")["attempt"] == 2)
        check_delay(tab, started(shop, uuid))
        await_words(tab, "runs on worker")
        gate.touch()
        tab.page.wait_for_selector(".task-title .state-succeeded", timeout=LONG)


@pytest.mark.timed
def test_task_is_behind_others_until_they_have_started(tab: Watched, shop: Shop, tmp_path: Path) -> None:
    gates = [tmp_path / name for name in ("first", "second", "third")]
    with shop.worker("-c", "1"):
        first, second, third = [fill(shop, "run_until", gate) for gate in gates]
        wait_until(lambda: api(shop, f"/tasks/{first}")["state"] == "running")
        for words, gate, next_one in (
            ("behind 1 task", gates[0], second),
            ("the next to start when a worker has a free slot", gates[1], third),
        ):
            show(tab, shop, third, words)
            tab.page.evaluate(WATCH, words)
            gate.touch()
            wait_until(lambda uuid=next_one: api(shop, f"/tasks/{uuid}")["state"] == "running")
            check_delay(tab, started(shop, next_one))
        gates[2].touch()
        tab.page.wait_for_selector(".task-title .state-succeeded", timeout=LONG)


@pytest.mark.timed
def test_wait_that_is_over_is_no_reason_a_second_after_a_worker_has_started(
    tab: Watched, shop: Shop, tmp_path: Path
) -> None:
    with shop.worker():
        uuid = fill(shop, "wait_for_signal", tmp_path)
        wait_until(lambda: explanation(shop, uuid)["reason"] == "waiting_signal")
    api(shop, "/signals/approved", {"payload": "yes"})
    words = "its wait is over: a worker moves it to ready at its next turn"
    show(tab, shop, uuid, words)
    tab.page.evaluate(WATCH, words)
    with shop.worker():
        check_delay(tab, seconds(live_workers(shop)[-1]["since"]))
        tab.page.wait_for_selector(".task-title .state-succeeded", timeout=LONG)
