"""Forms of the pages, filled in and sent by keyboard alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.page.conftest import Shop, Watched
from tests.page.test_flows import LONG
from tests.page.test_keyboard import MOST, give_reason, press, show

if TYPE_CHECKING:
    from playwright.sync_api import Page

LABEL = "(document.activeElement?.ariaLabel ?? document.activeElement?.closest('label')?.textContent ?? '').trim()"


def tab_to_field(page: Page, label: str) -> None:
    """label: how the name of the field begins."""
    for _ in range(MOST):
        if page.evaluate(LABEL).startswith(label):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {label!r}")


def fill(page: Page, **fields: str) -> None:
    """The fields of the dialog that is open, by the first words of their names, with _ for a space."""
    page.wait_for_selector("dialog[open]")
    for name, text in fields.items():
        tab_to_field(page, name.replace("_", " "))
        page.keyboard.press("Control+A")
        page.keyboard.type(text)


def send(page: Page) -> None:
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]", state="detached")


def test_schedule_is_created_edited_and_deleted_without_a_mouse(tab: Watched, shop: Shop) -> None:
    page = tab.page
    show(tab, shop, "schedules")
    press(page, "New schedule…")
    fill(page, Name="mail", Source="email", Arguments='{"to": "ann@example.com"}', Rule="mon-fri 08:00")
    page.wait_for_selector("dialog .preview li >> nth=4")
    send(page)
    row = "tr:has(button:has-text('mail'))"
    page.wait_for_selector(f"{row}:has-text('Mon–Fri at 08:00')")
    press(page, "Edit…")
    fill(page, Rule="every 2 h")
    page.wait_for_selector("dialog .preview:has-text('every 2 h')")
    send(page)
    page.wait_for_selector(f"{row}:has-text('every 2 h')")
    tab_to_field(page, "Delete mail?")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    press(page, "Delete")
    page.wait_for_selector(row, state="detached")


def test_task_is_added_without_a_mouse(tab: Watched, shop: Shop) -> None:
    page = tab.page
    show(tab, shop, "sources/email")
    press(page, "Add a task…")
    fill(page, Arguments='{"to": "ben@example.com"}', Label="a mail to ben")
    send(page)
    page.wait_for_url("**/tasks/*")
    page.wait_for_selector(".task-title:has-text('a mail to ben') .state-succeeded", timeout=LONG)


def test_key_is_paused_and_resumed_without_a_mouse(tab: Watched, shop: Shop) -> None:
    page = tab.page
    show(tab, shop, "sources/deliver")
    press(page, "Pause a key…")
    fill(page, Key="globex", Reason="by keyboard")
    send(page)
    page.wait_for_selector("main li:has-text('globex'):has-text('by keyboard')")
    press(page, "Resume")
    page.wait_for_selector("main :text('by keyboard')", state="detached")


def test_dead_letter_is_replayed_without_a_mouse(tab: Watched, shop: Shop) -> None:
    page = tab.page
    show(tab, shop, "outbox")
    page.wait_for_selector("tr:has-text('order-17') input")
    tab_to_field(page, "Select order-17")
    page.keyboard.press("Space")
    press(page, "Replay 1…")
    page.wait_for_selector("dialog[open]")
    tab_to_field(page, "Reason")
    give_reason(page)
    page.wait_for_selector(".notice:has-text('Published 1 event again')")
