"""Batches and waiting tasks in Chromium: seen live, cancelled and resumed there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.page.conftest import Shop, Watched, watched_tab
from tests.page.event_fills import XSS
from tests.page.looks import assert_fits_and_is_accessible, await_role, visit
from tests.page.test_flows import LONG, run, wait_for_live

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def tab(chromium: Browser, studio: Shop) -> Iterator[Watched]:
    with watched_tab(chromium, studio) as watched:
        yield watched


def new_batch(studio: Shop, style: str, gate: str) -> str:
    """Its deadline is an hour away."""
    call = f"studio.app.batch(studio.names, count=20, args={{'style': {style!r}, 'gate': {gate!r}}}, deadline=3600)"
    return run(studio, f"print((await {call}).id)")


@pytest.mark.parametrize("path", ["batches", "waiting"])
def test_an_empty_store_shows_how_to_begin(tab: Watched, studio: Shop, path: str) -> None:
    """The first tests of this store."""
    visit(tab, studio, path)
    assert "await" in tab.page.inner_text(".empty pre")
    assert_fits_and_is_accessible(tab)


def test_kept_signals_are_shown_if_nothing_waits(tab: Watched, studio: Shop) -> None:
    run(studio, f"await studio.app.signal('paid', {{'order': 17, 'note': {XSS!r}}})")
    visit(tab, studio, "waiting")
    tab.page.wait_for_selector(".empty")
    row = tab.page.locator("tr:has-text('paid')")
    assert row.locator("td.number").all_inner_texts() == ["0", "1"]
    row.get_by_role("button").click()
    tab.page.wait_for_selector("li:has-text('\"order\":17')")
    assert tab.page.evaluate("window.attacked") is None
    assert_fits_and_is_accessible(tab)


def test_a_batch_is_seen_live(tab: Watched, studio: Shop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    batch = new_batch(studio, XSS, str(gate))
    visit(tab, studio, f"batches/{batch}")
    wait_for_live(tab)
    tab.page.wait_for_selector(".batch-items:has-text('5 of 20')", timeout=LONG)
    tab.page.wait_for_selector("dt:has-text('May end')", timeout=LONG)
    assert tab.page.locator(".part.state-succeeded").count() == 1
    tab.page.wait_for_selector("dt:has-text('May end') + dd:has-text('±')")
    tab.page.wait_for_selector("dt:has-text('Deadline') + dd:has-text('on track')")
    assert tab.page.locator(".batch-mark").count() == 4
    line = tab.page.get_attribute(".batch-line", "aria-label") or ""
    assert [mark.rpartition(" ")[0].rpartition(" ")[0] for mark in line.split(", ")] == [
        "first result", "now", "may end", "deadline",
    ]  # fmt: skip
    gate.touch()
    tab.page.wait_for_selector(".task-title .state-succeeded", timeout=LONG)
    tab.page.wait_for_selector(".batch-items:has-text('20 of 20')", timeout=LONG)
    assert tab.page.locator(".part.state-succeeded").count() == 4
    assert tab.page.locator(".newest-items li").count() == 20
    tab.page.wait_for_selector("dt:has-text('Deadline') + dd:has-text('kept')")
    tab.page.wait_for_selector(".batch-arrivals:has-text('Items arrived per second')")
    assert tab.page.locator("table.rows td[data-name='Worker'] code").count() == 4
    assert XSS[:10] in tab.page.inner_text(".newest-items")
    assert tab.page.evaluate("window.attacked") is None
    assert_fits_and_is_accessible(tab)
    tab.page.click(".part >> nth=0")
    tab.page.wait_for_selector(".facts-list a[data-route^='batches/']")


def test_twenty_batches_are_frozen_and_shown_to_their_end(tab: Watched, studio: Shop) -> None:
    page = tab.page
    call = "studio.app.batch(studio.names, count=50, args={'style': 'many'})"
    ids = run(
        studio,
        "await studio.app.operations.pause('names', reason='until the page is open')",
        f"print(*[(await {call}).id for _ in range(20)])",
    ).split()
    visit(tab, studio, "sources/names:batch")
    page.click("button:has-text('Freeze…')")
    page.fill("dialog input", "enough for today")
    page.click("dialog button[type=submit]")
    page.wait_for_selector("button:has-text('Thaw')", timeout=LONG)
    refused = run(studio, "try:", f"    await {call}", "except Exception as error:", "    print(type(error).__name__)")
    assert refused == "SourceFrozen"
    visit(tab, studio, "batches")
    wait_for_live(tab)
    of_batches = "tr:is(" + ", ".join(f":has(a[href$='{batch}'])" for batch in ids) + ")"
    page.locator(of_batches).filter(has_text="frozen").nth(19).wait_for(timeout=LONG)
    page.locator(f"{of_batches} >> td:text-is('0 of 5')").nth(19).wait_for(timeout=LONG)
    run(studio, "await studio.app.operations.resume('names')")
    page.locator(f"{of_batches} >> td:text-is('5 of 5')").nth(19).wait_for(timeout=LONG)
    shown = {batch: page.inner_text(f"tr:has(a[href$='{batch}']) .share-column").split()[0] for batch in ids}
    listed = studio.command("batch", "list", "--limit", "20")["batches"]
    assert shown == {each["id"]: str(each["progress"]["items"]) for each in listed} == dict.fromkeys(ids, "50")
    assert studio.command("batch", "show", ids[0])["batch"]["batch"]["progress"]["items"] == 50
    visit(tab, studio, "sources/names:batch")
    page.click("button:has-text('Thaw')")
    page.wait_for_selector("button:has-text('Freeze…')", timeout=LONG)


def test_the_rest_of_a_batch_is_cancelled_on_its_page(tab: Watched, studio: Shop) -> None:
    batch = new_batch(studio, "old", "/nothing")
    visit(tab, studio, f"batches/{batch}")
    tab.page.wait_for_selector(".batch-items:has-text('5 of 20')", timeout=LONG)
    await_role(tab)
    tab.page.keyboard.press("c")
    tab.page.wait_for_selector("dialog:has-text('4 tasks of it have not ended')")
    tab.page.fill("dialog input", "enough")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector(".task-title .state-cancelled", timeout=LONG)
    visit(tab, studio, "batches?state=cancelled")
    assert tab.page.locator("tbody tr").count() == 1
    assert_fits_and_is_accessible(tab)


def test_a_waiting_task_is_resumed_by_the_signal_dialog(tab: Watched, studio: Shop) -> None:
    made = run(
        studio,
        f"mine = await studio.approve.enqueue(17, {XSS!r})",
        "other = await studio.approve.enqueue(18, 'globex')",
        "print(mine.uuid, other.uuid)",
    )
    mine, other = made.split()
    visit(tab, studio, "waiting")
    row = f"tr:has(a[href$='{mine}'])"
    tab.page.wait_for_selector(row, timeout=LONG)
    tab.page.wait_for_selector(f"tr:has(a[href$='{other}'])", timeout=LONG)
    assert tab.page.evaluate("window.attacked") is None
    assert_fits_and_is_accessible(tab)
    tab.page.click(f"{row} button:has-text('Signal…')")
    tab.page.fill("dialog textarea", "{by: ann}")
    tab.page.wait_for_selector("dialog [role=alert]")
    assert tab.page.is_disabled("dialog button[type=submit]")
    tab.page.fill("dialog textarea", '{"by": "ann"}')
    tab.page.fill("dialog .field input", "she called")
    tab.page.click("dialog button[type=submit]")
    tab.page.wait_for_selector(row, state="detached", timeout=LONG)
    assert tab.page.locator(f"tr:has(a[href$='{other}'])").count() == 1
    result = run(studio, f"print(await studio.app.ahandle({mine!r}).result(timeout=60))")
    assert result == "{'by': 'ann'}"
