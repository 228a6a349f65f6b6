"""Answers of the API that come late, or never: the page shows what it has, and states what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.page.conftest import TOKEN, VIEWER_TOKEN
from tests.support.waits import SOON

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

    from tests.page.conftest import Shop

STATUS = "**/api/v1/status"
LATE = 20_000  # ms: four times as long as the page waits between two requests for the status
ERROR = '{"error": {"code": "internal", "message": "a defect"}}'


@contextmanager
def signed_in(chromium: Browser, shop: Shop, token: str = TOKEN) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(SOON * 1000)
    page = context.new_page()
    page.goto(f"{shop.address}/login")
    page.fill("input", token)
    page.click("button[type=submit]")
    page.wait_for_url(f"{shop.address}/")
    yield page
    context.close()


def test_operator_sees_data_and_buttons_while_the_status_hangs(chromium: Browser, shop: Shop) -> None:
    with signed_in(chromium, shop) as page:
        held: list[Route] = []
        page.route(STATUS, lambda route: held.append(route))
        page.goto(f"{shop.address}/sources")
        row = page.locator("tr", has_text="deliver")
        row.get_by_role("button", name="Pause").wait_for()
        assert page.inner_text(".app") == "shop"
        assert page.get_by_role("button", name="Sign out").is_visible()
        assert page.get_by_role("link", name="Outbox").is_visible()
        held[0].continue_()
        page.wait_for_selector(".fact:has-text('worker')")


def test_viewer_has_no_buttons_before_the_status(chromium: Browser, shop: Shop) -> None:
    with signed_in(chromium, shop, VIEWER_TOKEN) as page:
        page.route(STATUS, lambda _: None)
        page.goto(f"{shop.address}/sources")
        page.locator("tr", has_text="deliver").wait_for()
        assert page.get_by_role("button", name="Pause").count() == 0


def test_page_states_that_the_status_is_missing(chromium: Browser, shop: Shop) -> None:
    with signed_in(chromium, shop) as page:
        page.route(STATUS, lambda route: route.fulfill(status=500, content_type="application/json", body=ERROR))
        page.goto(f"{shop.address}/sources")
        page.locator("tr", has_text="deliver").wait_for()
        page.wait_for_selector(".fact[title='a defect']:has-text('workers and slots unknown')")
        page.unroute(STATUS)
        page.wait_for_selector(".fact:has-text('1 worker')")
        assert page.get_by_text("unknown").count() == 0


def test_hanging_status_takes_one_connection(chromium: Browser, shop: Shop) -> None:
    with signed_in(chromium, shop) as page:
        held: list[Route] = []
        page.route(STATUS, lambda route: held.append(route))
        page.clock.install()
        page.goto(f"{shop.address}/sources")
        page.clock.run_for(LATE)
        page.locator("tr", has_text="deliver").wait_for()
        assert len(held) == 1


def test_page_that_waits_for_its_data_says_so(chromium: Browser, shop: Shop) -> None:
    with signed_in(chromium, shop) as page:
        held: list[Route] = []
        page.route("**/api/v1/sources", lambda route: held.append(route))
        page.goto(f"{shop.address}/sources")
        page.wait_for_selector(".loading")
        assert page.get_by_text("The server has not answered yet.").count() == 0
        page.get_by_text("The server has not answered yet.").wait_for()
        held[0].continue_()
        page.locator("tr", has_text="deliver").wait_for()
        page.wait_for_selector(".loading", state="detached")


@pytest.mark.parametrize("path", ["tasks/0193", "flows/0193", "batches/0193", "nowhere/at-all"])
def test_page_of_something_unknown_is_connected(chromium: Browser, shop: Shop, path: str) -> None:
    """The stream of an unknown task is refused: the head would state "reconnecting" for as long as the page is open."""
    with signed_in(chromium, shop) as page:
        page.goto(f"{shop.address}/{path}")
        page.get_by_role("heading", name="Not found").wait_for()
        page.wait_for_selector(".connection.live:has-text('live')")
        page.goto(f"{shop.address}/tasks")
        page.wait_for_selector("tr[data-uuid]")


def test_viewer_is_named_as_one(chromium: Browser, shop: Shop) -> None:
    with signed_in(chromium, shop, VIEWER_TOKEN) as page:
        page.wait_for_selector(".fact:has-text('viewer: read only')")


def test_filter_that_matches_nothing_offers_no_change(chromium: Browser, shop: Shop) -> None:
    with signed_in(chromium, shop) as page:
        page.goto(f"{shop.address}/tasks?q=source:nothing")
        page.get_by_role("heading", name="No task matches").wait_for()
        assert page.get_by_role("button", name="all that match").count() == 0
        page.goto(f"{shop.address}/tasks?q=source:deliver")
        page.get_by_role("button", name="Retry all that match").wait_for()


def test_chart_without_values_says_so(chromium: Browser, shop: Shop) -> None:
    with signed_in(chromium, shop) as page:
        answer = '{"step": 60, "at": ["2026-01-01T00:00:00Z"], "series": {"done": [null]}, "marks": []}'
        page.route("**/api/v1/series?**", lambda route: route.fulfill(content_type="application/json", body=answer))
        page.goto(f"{shop.address}/")
        page.get_by_text("No figures in this time.").nth(2).wait_for()
        page.unroute("**/api/v1/series?**")
        page.goto(f"{shop.address}/?since=live")
        page.wait_for_selector(".chart canvas")
        assert page.get_by_text("No figures in this time.").count() == 0
