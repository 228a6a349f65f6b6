"""Outbox, agents and audit in Chromium: what an operator sees, and what the buttons do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.page.conftest import VIEWER_TOKEN, Shop, Watched
from tests.page.event_fills import XSS
from tests.page.looks import visit
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PUBLISH = """
from onthedot.events import Event

async def main():
    async with shop.app:
        payload = {"order": NUMBER, "customer": "acme"}
        await shop.app.publish(Event("Shop.Order.Placed", payload, aggregate_id="NUMBER", id="order-NUMBER"))
"""


def answer(tab: Watched, path: str) -> Any:
    return json.loads(tab.page.evaluate("path => fetch(path).then(answer => answer.text())", f"/api/v1{path}"))


def changes(tab: Watched, action: str) -> list[tuple[str, str, int, str]]:
    rows = answer(tab, f"/audit?action={action}")["items"]
    return [(row["state"], row["via"], row["changed"], row["reason"]) for row in rows]


def test_counts_of_the_outbox_are_those_of_the_command_line(tab: Watched, shop: Shop) -> None:
    names = ("pending", "failed", "blocked_keys")

    def counts() -> list[int]:
        topics = shop.command("outbox", "status")["outbox"]["topics"]
        return [sum(each[name] for each in topics) for name in names]

    wait_until(lambda: counts()[0] == 0)  # the relay has sent all that can be sent
    visit(tab, shop, "outbox")
    pending, failed, blocked = counts()
    assert failed > 0
    tiles = dict(zip(*(tab.page.locator(f".tiles {part}").all_inner_texts() for part in ("dt", "dd")), strict=True))
    shown = {name: tiles[name] for name in ("Pending", "Failed", "Blocked keys")}
    assert shown == {"Pending": str(pending), "Failed": str(failed), "Blocked keys": str(blocked)}


def test_a_failed_event_is_looked_at_and_sent_again(tab: Watched, shop: Shop) -> None:
    visit(tab, shop, "outbox")
    row = tab.page.locator("tr:has-text('photo-1')")
    row.get_by_role("button", name="Payload").click()
    tab.page.wait_for_selector("dialog[open] pre")
    assert '"data": "retry me"' in tab.page.inner_text("dialog[open] pre")
    assert "hunter2" not in tab.page.content()
    tab.page.keyboard.press("Escape")
    row.get_by_role("button", name="Retry").click()
    tab.page.wait_for_selector(".notice:has-text('photo-1 is sent again')")
    wait_until(lambda: answer(tab, "/outbox/events/photo-1")["event"]["status"] == "sent")
    row.wait_for(state="detached")
    assert changes(tab, "retry event") == [("done", "page", 1, "")]


def test_a_discarded_event_needs_a_reason(tab: Watched, shop: Shop) -> None:
    visit(tab, shop, "outbox")
    tab.page.locator("tr:has-text('photo-2')").get_by_role("button", name="Discard").click()
    confirm = tab.page.locator("dialog[open] button[type=submit]")
    assert confirm.is_disabled()
    tab.page.fill("dialog[open] input", "too large")
    confirm.click()
    tab.page.locator("tr:has-text('photo-2')").wait_for(state="detached")
    assert changes(tab, "discard event") == [("done", "page", 1, "too large")]


def test_a_dead_letter_is_replayed_and_the_audit_shows_it(tab: Watched, shop: Shop) -> None:
    shop.run(PUBLISH.replace("NUMBER", "71"))
    visit(tab, shop, "outbox?agent=packer&error=order 71")
    row = tab.page.locator("tr:has-text('order-71')")
    row.locator("input[type=checkbox]").check()
    tab.page.get_by_role("button", name="Replay 1").click()
    tab.page.fill("dialog[open] .field input", "stock is back")
    tab.page.locator("dialog[open] button[type=submit]").click()
    tab.page.wait_for_selector(".notice:has-text('Published 1 event again')")
    tab.page.wait_for_selector("tr:has-text('order-71'):has-text('replay 1')")  # it has failed again
    visit(tab, shop, "audit")
    tab.page.fill(".filters label:has-text('Action') input", "replay dead letters")
    tab.page.keyboard.press("Enter")
    rows = tab.page.locator("table.audit tbody tr")
    rows.filter(has_not_text="replay dead letters").first.wait_for(state="detached")
    text = rows.inner_text()
    assert [word in text for word in ("operator", "page", "stock is back", "1 of 1", "Done")] == [True] * 5


def test_the_outbox_is_paused_with_a_reason_and_resumed(tab: Watched, shop: Shop) -> None:
    visit(tab, shop, "outbox")
    tab.page.locator(".page-head").get_by_role("button", name="Pause").click()
    tab.page.fill("dialog[open] input", "vendor is down")
    tab.page.locator("dialog[open] button[type=submit]").click()
    tab.page.wait_for_selector(".page-head :has-text('vendor is down')")
    tab.page.locator(".page-head").get_by_role("button", name="Resume").click()
    tab.page.wait_for_selector(".page-head >> text=vendor is down", state="detached")
    assert [each[0] for each in changes(tab, "pause outbox") + changes(tab, "resume outbox")] == ["done", "done"]


def test_agents_and_resume_handles_show_their_work(tab: Watched, shop: Shop) -> None:
    visit(tab, shop, "agents")
    tab.page.wait_for_selector("tr:has-text('packer')")
    tab.page.fill(".filters input", "cart-18")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector(".handle:has-text('1 of 2 events')")
    assert "order-18" in tab.page.inner_text(".handle")
    tab.page.locator("tr:has-text('packer')").get_by_role("link", name="Dead letters").click()
    tab.page.wait_for_selector("tr:has-text('order-17')")


def test_markup_in_events_stays_text(tab: Watched, shop: Shop) -> None:
    visit(tab, shop, "outbox")
    tab.page.wait_for_selector("tr:has-text('order-19')")
    assert XSS in tab.page.inner_text("tr:has-text('photo-3')"), "its key and its error"
    for row in ("photo-3", "order-19"):
        tab.page.locator(f"tr:has-text('{row}')").get_by_role("button", name="Payload").click()
        tab.page.wait_for_selector("dialog[open] pre")
        assert "onerror=" in tab.page.inner_text("dialog[open] pre >> nth=0")
        for summary in tab.page.locator("dialog[open] summary").all():
            summary.click()
        assert tab.page.locator("dialog[open] :is(img, script)").count() == 0
        tab.page.keyboard.press("Escape")
    tab.page.locator("tr:has-text('photo-3')").get_by_role("button", name="Discard").click()
    tab.page.fill("dialog[open] input", XSS)
    tab.page.locator("dialog[open] button[type=submit]").click()
    tab.page.locator("tr:has-text('photo-3')").wait_for(state="detached")
    visit(tab, shop, "audit")
    tab.page.wait_for_selector("table.audit tr:has-text('onerror')")
    assert tab.page.evaluate("window.attacked") is None
    assert tab.page.locator("main :is(img, script)").count() == 0


def test_a_viewer_reads_events_and_changes_none(chromium: Browser, shop: Shop) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{shop.address}/?token={VIEWER_TOKEN}")
    page.goto(f"{shop.address}/outbox")
    page.wait_for_selector("tr:has-text('order-17')")
    names = {button.inner_text() for button in page.locator("main button").all()}
    assert names == {"Payload"}
    assert page.locator("main input[type=checkbox]").count() == 0
    context.close()
