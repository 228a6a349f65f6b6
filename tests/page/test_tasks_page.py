"""The list of tasks in Chromium: which tasks wait behind "▲ n new"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from tests.page.conftest import Shop, Watched, watched_tab
from tests.page.looks import visit
from tests.support.waits import SOON

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROWS = 50  # of one page
NOTE_TEXTS = """() => {
    window.texts = [];
    new MutationObserver(() => {
        const text = document.querySelector("button.fresh")?.textContent;
        if (text && !window.texts.includes(text)) window.texts.push(text);
    }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


@pytest.fixture(scope="module")
def depot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Without a worker: its tasks are due in an hour."""
    found = Shop(tmp_path_factory.mktemp("depot"))
    add(found, "deliver", [(1, "acme")])
    with found.page():
        yield found


@pytest.fixture
def tab(chromium: Browser, depot: Shop) -> Iterator[Watched]:
    with watched_tab(chromium, depot) as watched:
        yield watched


def add(depot: Shop, source: str, arguments: Sequence[tuple[object, ...]]) -> list[str]:
    """The uuids of new tasks, one after the other."""
    lines = depot.run(
        f"""
async def main():
    async with shop.app:
        for arguments in {arguments!r}:
            print((await shop.{source}.options(after=3600).enqueue(*arguments)).uuid)
"""
    )
    return lines.split()


def watch_new_ones(tab: Watched, depot: Shop, path: str) -> None:
    visit(tab, depot, path)
    tab.page.wait_for_selector("table.tasks tbody tr")
    tab.page.wait_for_selector(".connection.live:has-text('live')")
    tab.page.evaluate(NOTE_TEXTS)


def wait_for_new_ones(tab: Watched) -> list[str]:
    """All texts of the button since the tab is watched."""
    tab.page.wait_for_selector("button.fresh", timeout=SOON * 1000)
    return list(tab.page.evaluate("window.texts"))


def test_only_new_tasks_that_match_the_filter_are_counted(tab: Watched, depot: Shop) -> None:
    watch_new_ones(tab, depot, "tasks?q=customer:acme")
    add(depot, "deliver", [(2, "globex"), (3, "globex")])
    add(depot, "email", [("ann@example.com",)])
    (new,) = add(depot, "deliver", [(4, "acme")])
    assert wait_for_new_ones(tab) == ["1 new"]
    tab.page.click("button.fresh")
    tab.page.wait_for_selector(f"table.tasks tbody tr:first-child[data-uuid='{new}']")
    assert tab.page.locator("table.tasks tbody tr").count() == 2


def test_old_tasks_that_change_below_the_page_are_not_new(tab: Watched, depot: Shop) -> None:
    old, *_ = add(depot, "email", [(f"user{number}@example.com",) for number in range(ROWS + 1)])
    watch_new_ones(tab, depot, "tasks")
    assert tab.page.locator(f"tr[data-uuid='{old}']").count() == 0
    depot.run(
        f"""
async def main():
    async with shop.app:
        await shop.app.operations.cancel({old!r})
"""
    )
    add(depot, "email", [("new@example.com",)])
    assert wait_for_new_ones(tab) == ["1 new"]


def test_tasks_that_move_up_from_the_next_page_are_not_new(tab: Watched, depot: Shop) -> None:
    add(depot, "resize", [(f"{number}.png",) for number in range(ROWS + 2)])
    watch_new_ones(tab, depot, "tasks?q=source:resize state:scheduled")
    first = tab.page.get_attribute("table.tasks tbody tr:first-child", "data-uuid")
    depot.run(
        f"""
async def main():
    async with shop.app:
        await shop.app.operations.cancel({first!r})
"""
    )
    tab.page.wait_for_selector(f"tr[data-uuid='{first}'] .state-cancelled")
    depot.run(
        """
async def main():
    async with shop.app:
        await shop.resize.options(after=1800).enqueue("soon.png")
"""
    )
    assert wait_for_new_ones(tab) == ["1 new"]
