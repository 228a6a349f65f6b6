"""The pages by keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.page.conftest import Shop, Watched, watched_tab
from tests.page.looks import await_role, visit
from tests.page.test_flows import LONG, run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MARK = """() => {
    const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")];
    const byArrows = ".node[tabindex='-1']";  /* the other nodes of a graph */
    const isUsable = (each) => !each.disabled && each.checkVisibility() && !each.closest("[inert]");
    const usable = all.filter((each) => isUsable(each) && !each.matches(byArrows));
    usable.forEach((each, number) => each.dataset.number = number);
    document.activeElement?.blur();
    return usable.length;
}"""
FOCUSED = "document.activeElement?.dataset.number ?? ''"
DESCRIBE = "(number) => document.querySelector(`[data-number='${number}']`)?.outerHTML.slice(0, 120)"
MOST = 200  # presses to find something


def tab_to(page: Page, text: str) -> None:
    for _ in range(MOST):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement?.textContent?.trim()") == text:
            return
    raise AssertionError(f"Tab does not reach {text!r}")


def press(page: Page, text: str) -> None:
    """The button with this text."""
    tab_to(page, text)
    page.keyboard.press("Enter")


def give_reason(page: Page, reason: str = "by keyboard") -> None:
    """Fill in the first field of the dialog, and confirm."""
    page.wait_for_selector("dialog[open]")
    page.keyboard.type(reason)
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]", state="detached")


def show(tab: Watched, shop: Shop, path: str) -> None:
    visit(tab, shop, path)
    await_role(tab)


@pytest.fixture
def studio_tab(chromium: Browser, studio: Shop) -> Iterator[Watched]:
    with watched_tab(chromium, studio) as watched:
        yield watched


PATHS = (
    "", "tasks?q=state%3Afailed", "task", "failed", "sources", "sources/deliver", "schedules", "workers", "outbox",
    "agents", "audit",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_tab_reaches_everything_that_can_be_used(tab: Watched, shop: Shop, path: str) -> None:
    check_tab(tab, shop, f"tasks/{shop.attacker}" if path == "task" else path)


def test_tab_reaches_everything_of_flows_batches_and_waiting_tasks(studio_tab: Watched, studio: Shop) -> None:
    made = run(
        studio,
        "flow = await studio.nightly('monday', 3, '/nothing').enqueue()",
        "batch = await studio.app.batch(studio.names, count=20, args={'style': 'noir', 'gate': '/nothing'})",
        "waiting = await studio.approve.enqueue(17, 'acme')",
        "print(flow.uuid, batch.id, waiting.uuid)",
    )
    flow, batch, waiting = made.split()
    visit(studio_tab, studio, "waiting")
    studio_tab.page.wait_for_selector(f"tr:has(a[href$='{waiting}'])", timeout=LONG)
    for path in ("flows", f"flows/{flow}", "batches", f"batches/{batch}", "waiting"):
        check_tab(studio_tab, studio, path)


def check_tab(tab: Watched, shop: Shop, path: str) -> None:
    page = tab.page
    show(tab, shop, path)
    page.keyboard.press("p")  # no updates while this presses keys
    page.wait_for_selector(".connection.held")
    number = page.evaluate(MARK)
    assert number > 20
    reached: set[str] = set()
    for _ in range(number + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(FOCUSED))
    missing = [page.evaluate(DESCRIBE, each) for each in range(number) if str(each) not in reached]
    assert missing == []


def test_tasks_are_retried_and_a_source_is_paused_without_a_mouse(tab: Watched, shop: Shop) -> None:
    page = tab.page
    visit(tab, shop, "tasks?q=source%3Adeliver%20state%3Afailed")
    page.wait_for_selector("table.tasks tbody td.check")  # of an operator
    for key in ("j", "x", "r"):
        page.keyboard.press(key)
    page.wait_for_selector("dialog[open]")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    page.wait_for_selector(".notice.done")
    visit(tab, shop, "sources/deliver")
    tab_to(page, "Pause…")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    page.wait_for_selector("main :text('by keyboard')")
    tab_to(page, "Resume")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Pause…")


def test_source_is_limited_and_frozen_without_a_mouse(tab: Watched, shop: Shop) -> None:
    page = tab.page
    show(tab, shop, "sources/email")
    press(page, "Set a limit…")
    give_reason(page, "3")
    page.wait_for_selector("text=Reset to code")
    press(page, "Reset to code")
    page.wait_for_selector("text=Set a limit…")
    change_mode(page, "Freeze…", "Thaw")


def test_batches_of_a_source_are_degraded_without_a_mouse(studio_tab: Watched, studio: Shop) -> None:
    run(studio, "await studio.app.batch(studio.names, count=5, args={'style': 'first'})")
    show(studio_tab, studio, "sources/names:batch")
    change_mode(studio_tab.page, "Degrade…", "Restore")


def change_mode(page: Page, change: str, back: str) -> None:
    press(page, change)
    give_reason(page)
    page.wait_for_selector(f"main button:has-text('{back}')")
    press(page, back)
    page.wait_for_selector(f"main button:has-text('{change}')")


def test_schedule_is_run_paused_and_resumed_without_a_mouse(tab: Watched, shop: Shop) -> None:
    page = tab.page
    show(tab, shop, "schedules")
    press(page, "Run now")
    page.wait_for_selector(".notice:has-text('runs now')")
    press(page, "Pause…")
    give_reason(page)
    page.wait_for_selector("main td:has-text('by keyboard')")
    press(page, "Resume")
    page.wait_for_selector("main td:has-text('by keyboard')", state="detached")


def test_events_are_shown_retried_and_discarded_without_a_mouse(tab: Watched, shop: Shop) -> None:
    page = tab.page
    show(tab, shop, "outbox")
    page.wait_for_selector("tr:has-text('photo-1')")
    press(page, "Payload")
    page.wait_for_selector("dialog[open] pre")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    press(page, "Retry")
    page.wait_for_selector(".notice:has-text('is sent again')")
    page.wait_for_selector("tr:has-text('photo-1')", state="detached")
    press(page, "Discard…")
    give_reason(page)
    page.wait_for_selector(".notice:has-text('discarded')")
    press(page, "Pause…")
    give_reason(page)
    page.wait_for_selector("main :text('by keyboard')")
    press(page, "Resume")
    page.wait_for_selector("main :text('by keyboard')", state="detached")


def test_flow_batch_and_waiting_task_are_changed_without_a_mouse(studio_tab: Watched, studio: Shop) -> None:
    page = studio_tab.page
    made = run(
        studio,
        "await studio.app.operations.pause('score', reason='so that the flow lives')",
        "flow = await studio.nightly('tuesday', 2).enqueue()",
        "batch = await studio.app.batch(studio.names, count=20, args={'style': 'old', 'gate': '/nothing'})",
        "waiting = await studio.approve.enqueue(18, 'globex')",
        "print(flow.uuid, batch.id, waiting.uuid)",
    )
    flow, batch, waiting = made.split()
    show(studio_tab, studio, f"tasks/{waiting}")
    page.wait_for_selector(".explain button:has-text('Signal…')", timeout=LONG)
    press(page, "Signal…")
    page.wait_for_selector("dialog[open]")
    page.keyboard.type("17")
    press(page, "Send signal")
    page.wait_for_selector(".task-title .state-succeeded", timeout=LONG)
    for path in (f"flows/{flow}", f"batches/{batch}"):
        show(studio_tab, studio, path)
        page.wait_for_selector("main button:has-text('Cancel')", timeout=LONG)
        page.keyboard.press("c")
        give_reason(page)
        page.wait_for_selector(".task-title .state-cancelled", timeout=LONG)
    run(studio, "await studio.app.operations.resume('score')")
    show(studio_tab, studio, f"flows/{flow}")
    page.wait_for_selector("main button:has-text('Retry')", timeout=LONG)
    page.keyboard.press("r")
    give_reason(page)
    page.wait_for_selector(".task-title .state-succeeded", timeout=LONG)
