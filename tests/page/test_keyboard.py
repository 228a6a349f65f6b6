"""The pages by keyboard alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.page.conftest import Shop, Watched
from tests.page.looks import await_role, visit

if TYPE_CHECKING:
    from playwright.sync_api import Page

MARK = """() => {
    const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")];
    const usable = all.filter((each) => !each.disabled && each.checkVisibility() && !each.closest("[inert]"));
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


@pytest.mark.parametrize(
    "path", ["", "tasks?q=state%3Afailed", "task", "failed", "sources/deliver", "schedules", "outbox", "audit"]
)
def test_tab_reaches_everything_that_can_be_used(tab: Watched, shop: Shop, path: str) -> None:
    page = tab.page
    visit(tab, shop, f"tasks/{shop.attacker}" if path == "task" else path)
    await_role(tab)
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
