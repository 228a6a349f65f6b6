"""Charts over time, attention items, sources, lists by keyboard and the back button, in Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.conftest import Shop, Watched
from tests.page.looks import assert_fits_and_is_accessible, visit
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Request

RELEASE = "9f3c2"
RANGES = {"6 h": "minute", "24 h": "ten minutes", "7 d": "hour", "62 d": "hour", "1 h": "minute"}
MAX_REQUESTS = 2  # of a view, beside the stream; the frame asks for the status
VIEWS = (
    "", "?since=7d", "tasks", "task", "failed", "sources", "sources/deliver", "sources/deliver?since=24h", "schedules",
    "workers", "flows", "batches", "waiting", "outbox", "agents", "agents?correlation=cart-18", "audit",
)  # fmt: skip
LISTS = ("", "failed", "sources", "schedules", "workers", "outbox", "audit")


@pytest.fixture(scope="module", autouse=True)
def release() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONTHEDOT_RELEASE", RELEASE)
        yield


def answer(tab: Watched, path: str) -> Any:
    return json.loads(tab.page.evaluate("path => fetch(path).then(answer => answer.text())", f"/api/v1{path}"))


def post(tab: Watched, path: str, body: dict[str, object]) -> None:
    tab.page.evaluate(
        """([path, body]) => fetch(path, {
            method: "POST", headers: {"Content-Type": "application/json", "X-Onthedot": "1"}, body,
        })""",
        [f"/api/v1{path}", json.dumps(body)],
    )


def has_figures(tab: Watched) -> bool:
    """Workers write them every ten seconds."""
    return any(answer(tab, "/series?names=done")["series"]["done"])


@pytest.mark.parametrize("path", ["", "sources/email"])
def test_charts_show_the_time_that_is_chosen(tab: Watched, shop: Shop, path: str) -> None:
    page = tab.page
    visit(tab, shop, path)
    wait_until(lambda: has_figures(tab))
    for name, span in RANGES.items():
        page.click(f".charts nav >> text='{name}'")
        page.wait_for_selector(f".charts h2:has-text('Ended per {span}')")
        page.wait_for_selector(f".charts .legend:has-text('{RELEASE}')")
        page.wait_for_selector(".charts .chart canvas")
    page.click(".charts nav >> text='24 h'")
    page.reload()
    page.wait_for_selector(".charts h2:has-text('Ended per ten minutes')")
    assert page.url.endswith("?since=24h")
    page.click(".charts nav >> text='Live'")
    page.wait_for_selector(".charts h2:has-text('Ended per second')")
    assert page.locator(".charts .card").count() == 1


def test_a_chart_has_a_gap_where_no_worker_was_alive(tab: Watched, shop: Shop) -> None:
    visit(tab, shop, "?since=6h")
    wait_until(lambda: has_figures(tab))
    tab.page.click(".charts .card:first-of-type >> text=as table")
    tab.page.wait_for_selector(".charts tbody tr:last-child td:not(:has-text('–')) >> nth=1")
    rows = tab.page.locator(".charts tbody tr")
    assert rows.count() >= 359
    assert rows.first.locator("td").all_inner_texts()[1:] == ["–", "–"]
    assert any(text not in "–0" for text in tab.page.locator(".charts tbody td:nth-child(2)").all_inner_texts())


def test_charts_of_all_ranges_are_accessible(tab: Watched, shop: Shop) -> None:
    visit(tab, shop, "sources/deliver?since=62d")
    tab.page.wait_for_selector(".charts canvas")
    assert_fits_and_is_accessible(tab)


def test_attention_items_lead_to_their_page_and_retry_their_tasks(tab: Watched, shop: Shop) -> None:
    page = tab.page
    visit(tab, shop, "")
    page.click(".attention li:has-text('events of') >> text=Show")
    page.wait_for_selector("h1:has-text('Outbox')")
    page.go_back()
    page.click(".attention li:has-text('ConnectError') >> text=Show")
    page.wait_for_selector("table.tasks tbody tr:nth-child(3)")
    assert page.locator("table.tasks tbody tr").count() == 3
    assert "group:" in page.input_value("#filter")
    page.go_back()
    item = page.locator(".attention li:has-text('ConnectError')")
    item.locator("svg[aria-label='3 failures in the last hour']").wait_for()
    item.locator(f"text=All after release {RELEASE}").wait_for()
    page.click(".attention li:has-text('ConnectError') >> text=Retry 3…")
    page.wait_for_selector("dialog:has-text('Retry 3 tasks?')")


def test_tiles_have_failures_and_retries_of_the_last_hour(tab: Watched, shop: Shop) -> None:
    visit(tab, shop, "")
    wait_until(lambda: has_figures(tab))
    tab.page.wait_for_selector(".tile.bad:has-text('Failed, last hour')")
    tab.page.wait_for_selector(".tile:has-text('Retried, last hour'):not(:has(dd:text-is('0')))")
    tab.page.wait_for_selector(f".fact:has-text('release {RELEASE}')")
    charted = tab.page.locator(".tile:has(.spark path) dt").all_inner_texts()
    assert charted == ["Done", "Latency p95", "Lateness p99", "Failed, last hour", "Retried, last hour"]


def test_sources_have_the_last_hour_and_a_pause_button(tab: Watched, shop: Shop) -> None:
    page = tab.page
    visit(tab, shop, "sources")
    wait_until(lambda: has_figures(tab))
    row = page.locator("tr:has(a:text-is('deliver'))")
    row.locator("svg[aria-label='3 tasks done in the last hour']").wait_for()
    texts = dict(zip(page.locator("th").all_inner_texts(), row.locator("td").all_inner_texts(), strict=True))
    assert texts["Failed %"] == "57 %"  # 4 of 7
    assert texts["Latency p95"] != "–"
    assert page.get_attribute("th:has-text('Latency')", "title") == (
        "From the due time of a task to its start, in the last hour"
    )
    row.get_by_role("button", name="Pause").click()
    page.fill("dialog input", "the vendor is down")
    page.click("dialog button[type=submit]")
    row.locator(".badge:has-text('paused')").wait_for()
    row.get_by_role("button", name="Resume").click()
    row.locator(".badge").wait_for(state="detached")


def test_limit_of_a_source_is_set_in_the_list(tab: Watched, shop: Shop) -> None:
    page = tab.page
    visit(tab, shop, "")
    row = page.locator("tr:has(a:text-is('email'))")
    row.get_by_role("button", name="Limits").click()
    page.fill("dialog input[type=number]", "40")
    page.click("dialog button[type=submit]")
    row.locator("td[data-name='Running']:has-text('40')").wait_for()
    limits = {each["name"]: each["limits"] for each in answer(tab, "/sources")["items"]}
    assert [(limit["name"], limit["cap"], limit["by"]) for limit in limits["email"]] == [("email", 40, "operator")]


def test_one_key_of_a_source_is_paused_and_resumed(tab: Watched, shop: Shop) -> None:
    page = tab.page
    visit(tab, shop, "sources/email")
    assert page.locator("text=Pause a key…").count() == 0, "it has no limit by key"
    visit(tab, shop, "sources/deliver")
    page.click("text=Pause a key…")
    page.fill("dialog label:has-text('Key') input", "globex")
    assert page.is_disabled("dialog button[type=submit]"), "without a reason"
    page.fill("dialog label:has-text('Reason') input", "their server is down")
    page.click("dialog button[type=submit]")
    line = page.locator("li.line:has-text('globex')")
    line.locator("text=their server is down").wait_for()
    paused = {row["name"]: row["paused_keys"] for row in answer(tab, "/sources")["items"]}
    assert [pause["key"] for pause in paused["deliver"]] == ["globex"]
    line.get_by_role("button", name="Resume").click()
    line.wait_for(state="detached")


def test_failures_of_one_source_are_chosen(tab: Watched, shop: Shop) -> None:
    page = tab.page
    visit(tab, shop, "failed")
    page.wait_for_selector(".groups li:has-text('packer')")
    page.select_option(".inline-field select", "deliver")
    page.wait_for_selector(".groups li:has-text('packer')", state="detached")
    page.wait_for_selector(".groups li:has-text('ConnectError')")
    assert "source=deliver" in page.url
    page.go_back()
    page.wait_for_selector(".groups li:has-text('packer')")


@pytest.mark.parametrize("path", LISTS)
def test_keys_move_through_every_list_and_open_a_row(tab: Watched, shop: Shop, path: str) -> None:
    page = tab.page
    if path == "audit":
        post(tab, f"/tasks/{shop.attacker}/retry", {"reason": "to have a row"})
    visit(tab, shop, path)
    row = "main :is(table.cards > tbody > tr:not(.detail, .runs-line), .groups > li)"
    page.wait_for_selector(row)
    page.keyboard.press("j")
    assert page.evaluate("row => document.activeElement.matches(row)", row)
    page.keyboard.press("j")
    page.keyboard.press("k")
    first = page.evaluate("row => document.activeElement === document.querySelector(row)", row)
    assert first
    while path == "outbox" and "photo-" not in page.evaluate("document.activeElement.innerText"):
        page.keyboard.press("j")  # a topic has nothing to open
    before = page.url
    page.keyboard.press("Enter")
    page.wait_for_function(
        "before => location.href !== before || document.querySelector('dialog[open], tr.detail')", arg=before
    )


def test_e_explains_the_task_of_a_row_and_of_its_page(tab: Watched, shop: Shop) -> None:
    page = tab.page
    visit(tab, shop, "tasks?q=source:email state:scheduled")
    page.wait_for_selector("table.tasks tbody tr")
    page.keyboard.press("j")
    page.keyboard.press("e")
    page.wait_for_selector("dialog.explanation[open] p")
    text = page.inner_text("dialog.explanation p >> nth=0")
    uuid = page.get_attribute("tr.current", "data-uuid")
    assert text == answer(tab, f"/tasks/{uuid}/explain")["text"]
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.wait_for_selector(".task-head")
    page.keyboard.press("e")
    page.wait_for_selector("dialog.explanation[open] p")


def test_the_back_button_restores_scroll_row_and_selection(tab: Watched, shop: Shop) -> None:
    page = tab.page
    page.set_viewport_size({"width": 1200, "height": 420})
    visit(tab, shop, "tasks")
    page.wait_for_selector("table.tasks tbody tr:nth-child(12)")
    for key in "jjjjjjjjjxjx":
        page.keyboard.press(key)
    page.wait_for_selector("text=2 selected")
    page.evaluate("scrollTo(0, 170)")
    chosen = page.get_attribute("tr.current", "data-uuid")
    for leave in (lambda: page.keyboard.press("Enter"), lambda: page.click("nav a:has-text('Workers')")):
        leave()
        page.wait_for_selector("h1:visible")
        page.wait_for_selector("table.tasks", state="detached")
        page.go_back()
        page.wait_for_selector("table.tasks tbody tr.current")
        assert page.get_attribute("tr.current", "data-uuid") == chosen
        assert page.locator("tr.selected").count() == 2
        page.wait_for_function("() => Math.abs(scrollY - 170) <= 1")
    page.reload()
    page.wait_for_selector("tr.selected >> nth=1")
    page.wait_for_function("() => Math.abs(scrollY - 170) <= 1")


def test_a_path_that_is_no_page_is_answered_with_404(tab: Watched, shop: Shop) -> None:
    paths = (
        "",
        "tasks/",
        "tasks/a",
        "tasks/a/b",
        "sources/a",
        "flows/a",
        "schedules",
        "schedules/backup",
        "workers/w",
        "none",
    )
    for path in paths:
        response = tab.page.goto(f"{shop.address}/{path}")
        assert response is not None
        tab.page.wait_for_selector("main :is(h1, h2)")
        is_missing = tab.page.locator("text=There is no page at this address.").count() == 1
        assert (response.status == 404) == is_missing, path
    tab.troubles = [text for text in tab.troubles if "404" not in text]


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_makes_two_requests_at_most(tab: Watched, shop: Shop, path: str) -> None:
    requests: list[str] = []

    def note(request: Request) -> None:
        if "/api/v1/" in request.url and "/changes" not in request.url:
            requests.append(request.url.partition("/api/v1")[2].partition("?")[0])

    tab.page.goto("about:blank")
    tab.page.on("request", note)
    visit(tab, shop, f"tasks/{shop.attacker}" if path == "task" else path)
    tab.page.wait_for_selector(".connection.live:has-text('live')")
    views = set(requests) - {"/status"}
    assert 1 <= len(views) <= MAX_REQUESTS, views
