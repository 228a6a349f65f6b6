"""Reasons why a task does not run, on its page in Chromium: in words, with a button, and gone with their cause."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.conftest import Shop, Watched, watched_tab
from tests.page.looks import visit
from tests.page.screen_delay import api
from tests.support.waits import SOON, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LONG = SOON * 1000  # ms
BOUND = 1000.0  # ms from the end of a cause to the screen
BUTTONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "pause_source": ("make is paused", "Resume", {}),
    "pause_key": ("is paused", "Resume", {}),
    "fill_source": ("limit", "Change limit…", {"cap": 2}),
    "fill_key": ("limit", "Change limit…", {"cap": 2}),
    "use_up_rate": ("report may start 1/h", "Change limit…", {"rate": "100/s"}),
    "wait_for_signal": ('waits for the signal "approved"', "Signal…", {"payload": "yes"}),
}
"""Functions of the app → words of the reason, the button that ends it, and what an operator adds."""
FIELDS = {"cap": "At once", "rate": "Rate", "payload": "Payload"}
WATCH = """(words) => {
    const shows = () => document.querySelector(".explain")?.textContent.includes(words) ?? false;
    window.goneAt = shows() ? null : 0;
    const observer = new MutationObserver(() => {
        if (shows() || window.goneAt !== null) return;
        requestAnimationFrame(() => { window.goneAt ??= Date.now(); });
    });
    observer.observe(document.body, {subtree: true, childList: true, characterData: true});
}"""
CHANGE = """async ([method, path, body]) => {
    const headers = {"Content-Type": "application/json", "X-Onthedot": "1"};
    const answer = await fetch(`/api/v1${path}`, {method, headers, body: JSON.stringify(body)});
    return answer.status;
}"""


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    found = Shop(tmp_path_factory.mktemp("held"), Path(__file__).with_name("held_shop.py"), "held")
    with found.worker(), found.page():
        yield found


@pytest.fixture
def tab(chromium: Browser, held: Shop) -> Iterator[Watched]:
    with watched_tab(chromium, held) as watched:
        yield watched


def fill(shop: Shop, function: str, gate: Path) -> str:
    """The uuid of a task that is held back."""
    return shop.run(
        f"async def main():\n    async with held_shop.app:\n        print(await held_shop.{function}({str(gate)!r}))"
    )


def show(tab: Watched, shop: Shop, uuid: str, words: str) -> None:
    visit(tab, shop, f"tasks/{uuid}")
    tab.page.wait_for_selector(f".explain:has-text({words!r})", timeout=LONG)
    tab.page.wait_for_selector(".connection.live:has-text('live')", timeout=LONG)


def explanation(shop: Shop, uuid: str) -> dict[str, Any]:
    found: dict[str, Any] = api(shop, f"/tasks/{uuid}/explain")
    return found


@pytest.mark.parametrize("function", BUTTONS)
def test_button_of_a_reason_ends_it(tab: Watched, held: Shop, tmp_path: Path, function: str) -> None:
    words, button, change = BUTTONS[function]
    gate = tmp_path / "gate"
    uuid = fill(held, function, gate)
    show(tab, held, uuid, words)
    action = explanation(held, uuid)["action"]
    tab.page.click(f".explain button:has-text('{button}')")
    if change:
        ((name, value),) = change.items()
        text = f'"{value}"' if name == "payload" else str(value)
        tab.page.fill(f"dialog label:has-text('{FIELDS[name]}') :is(input, textarea)", text)
        tab.page.click("dialog button[type=submit]")
    tab.page.wait_for_selector(".task-title .state-succeeded", timeout=LONG)
    tab.page.wait_for_selector(".explain", state="detached", timeout=LONG)
    if name_of_result := change.get("payload"):
        assert str(name_of_result) in tab.page.inner_text("main pre.json >> nth=1")
    restore(tab, action, gate)


def restore(tab: Watched, action: dict[str, Any], gate: Path) -> None:
    """The limits of the code, for other tests."""
    gate.touch()
    if action["label"] == "limit":
        body = {"cap": None, "rate": None, "burst": None}
        assert tab.page.evaluate(CHANGE, [action["method"], action["path"], {**action["body"], **body}]) == 200


@pytest.mark.timed
@pytest.mark.parametrize("function", BUTTONS)
def test_reason_that_an_operator_ends_is_gone_within_a_second(
    tab: Watched, held: Shop, tmp_path: Path, function: str
) -> None:
    words, _, change = BUTTONS[function]
    gate = tmp_path / "gate"
    uuid = fill(held, function, gate)
    show(tab, held, uuid, words)
    action = explanation(held, uuid)["action"]
    tab.page.evaluate(WATCH, words)
    begun = time.time()
    assert tab.page.evaluate(CHANGE, [action["method"], action["path"], {**action["body"], **change}]) == 200
    check_delay(tab, begun)
    restore(tab, action, gate)


def check_delay(tab: Watched, ended: float) -> None:
    """ended: the cause, in seconds since the epoch."""
    wait_until(lambda: tab.page.evaluate("window.goneAt") is not None)
    delay = tab.page.evaluate("window.goneAt") - ended * 1000
    print(f"{delay:.0f} ms")
    assert 0 <= delay <= BOUND


@pytest.mark.timed
@pytest.mark.parametrize(("function", "words"), [("sleep", "it sleeps until"), ("add_later", "it is not due before")])
def test_reason_that_time_ends_is_gone_within_a_second(
    tab: Watched, held: Shop, tmp_path: Path, function: str, words: str
) -> None:
    uuid = fill(held, function, tmp_path)
    show(tab, held, uuid, words)
    tab.page.evaluate(WATCH, words)
    check_delay(tab, datetime.fromisoformat(explanation(held, uuid)["until"]).timestamp())
    tab.page.wait_for_selector(".task-title .state-succeeded", timeout=LONG)


@pytest.mark.timed
def test_reason_that_another_task_ends_is_gone_within_a_second(tab: Watched, held: Shop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    uuid = fill(held, "wait_for_task", gate)
    words = "it waits for 1 of 1 task of flow"
    show(tab, held, uuid, words)
    tab.page.wait_for_selector(".explain .holders:has-text('load')")
    tab.page.evaluate(WATCH, words)
    begun = time.time()
    gate.touch()
    check_delay(tab, begun)


@pytest.mark.timed
def test_reason_that_a_completed_flow_ends_is_gone_within_a_second(tab: Watched, held: Shop, tmp_path: Path) -> None:
    uuid = fill(held, "interrupt_flow", tmp_path)
    words = "the signal that starts them is not sent yet"
    show(tab, held, uuid, words)
    tab.page.evaluate(WATCH, words)
    begun = held.run(
        "import time\nasync def main():\n    async with held_shop.app:\n"
        "        await held_shop.complete_flow()\n        print(time.time())"
    )
    wait_until(lambda: tab.page.evaluate("window.goneAt") is not None)
    assert tab.page.evaluate("window.goneAt") / 1000 - float(begun) <= BOUND / 1000


def test_missing_worker_and_a_wait_that_is_over_are_reasons(chromium: Browser, tmp_path: Path) -> None:
    shop = Shop(tmp_path, Path(__file__).with_name("held_shop.py"), "held")
    waits = fill(shop, "wait_for_signal", tmp_path)
    with shop.page():
        with shop.worker():
            wait_until(lambda: explanation(shop, waits)["reason"] == "waiting_signal")
        ready = fill(shop, "use_up_rate", tmp_path)
        first = api(shop, "/tasks?q=source:report")["items"][-1]["uuid"]
        with watched_tab(chromium, shop) as tab:
            show(tab, shop, first, "no worker is alive")
            show(tab, shop, waits, 'waits for the signal "approved"')
            api(shop, "/signals/approved", {"payload": "yes"})
            tab.page.wait_for_selector(".explain:has-text('its wait is over')", timeout=LONG)
            tab.page.wait_for_selector(".explain .hint:has-text('no worker is alive')", timeout=LONG)
            with shop.worker():
                tab.page.wait_for_selector(".task-title .state-succeeded", timeout=LONG)
                tab.page.wait_for_selector(".explain", state="detached", timeout=LONG)
                show(tab, shop, ready, "report may start 1/h")


def test_misspelt_source_and_an_end_because_of_others_are_named(tab: Watched, held: Shop, tmp_path: Path) -> None:
    show(tab, held, fill(held, "misspell", tmp_path), "make")
    assert tab.page.locator(".explain button").count() == 0
    show(tab, held, fill(held, "fail_before", tmp_path), "upstream: fail")
    assert "no order 17" in tab.page.inner_text(".explain")
    assert tab.page.inner_text(".explain h2") == "Why it ended"
