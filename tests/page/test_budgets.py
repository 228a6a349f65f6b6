"""The times and the memory of the page in Chromium: first paint, live, moves of the layout, long tasks, heap."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.faults import scaled
from tests.page.conftest import TOKEN, Shop
from tests.page.load import loaded
from tests.page.screen_delay import GATE_SHOP
from tests.support.waits import SOON

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

PAINT = 500.0  # ms
LIVE = 800.0  # ms
SHIFT = 0.02
STATUS_SHIFT = 0.001  # what the answer to /status moves
LONG_TASK = 50.0  # ms
GROWTH = 5.0  # MB
BUSY = 0.3  # of a processor
MOST_LONG = 0.5  # tasks per second: the clock runs on while other programs have the processor. The goal is none
LOADS = 5
TRANSITIONS = 2_000  # per second
SECONDS = scaled(6, 600)
PAGES = ("", "tasks")
OBSERVE = """
window.shift = 0;
window.longTasks = [];
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({type: "layout-shift", buffered: true});
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
}).observe({type: "longtask", buffered: true});
const look = () => {
    if (document.querySelector(".connection.live")?.textContent.includes("live")) window.liveAt = performance.now();
    else requestAnimationFrame(look);
};
look();
"""
PAINTED = "() => new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)))"


@pytest.fixture(scope="module")
def busy_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(tmp_path_factory.mktemp("busy"), GATE_SHOP, "gates")
    with shop.both():
        yield shop


@pytest.fixture
def context(chromium: Browser, busy_shop: Shop) -> Iterator[BrowserContext]:
    """Signed in, with observers in every page."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, bypass_csp=True)
    page = context.new_page()
    page.goto(f"{busy_shop.address}/?token={TOKEN}")
    page.close()
    context.add_init_script(OBSERVE)
    yield context
    context.close()


def opened(context: BrowserContext, shop: Shop, path: str) -> Page:
    page = context.new_page()
    page.goto(f"{shop.address}/{path}")
    page.wait_for_function("() => window.liveAt", timeout=SOON * 1000)
    page.wait_for_selector(".loading", state="detached")
    return page


@pytest.mark.timed
@pytest.mark.parametrize("path", PAGES)
def test_page_is_painted_and_live_at_once_and_does_not_move(
    context: BrowserContext, busy_shop: Shop, path: str
) -> None:
    paints: list[float] = []
    lives: list[float] = []
    shifts: list[float] = []
    for _ in range(LOADS):
        page = opened(context, busy_shop, path)
        page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length")
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        lives.append(page.evaluate("window.liveAt"))
        page.wait_for_load_state("load")
        shifts.append(page.evaluate("window.shift"))
        page.close()
    print(f"/{path}: first paint {paints} ms, live {lives} ms, shift {shifts}")
    assert statistics.median(paints) <= PAINT
    assert statistics.median(lives) <= LIVE
    assert max(shifts) <= SHIFT


@pytest.mark.parametrize("path", ["overview", "tasks", "sources", "workers", "schedules"])
def test_page_does_not_move_when_the_status_is_its_last_answer(
    context: BrowserContext, busy_shop: Shop, path: str
) -> None:
    page = context.new_page()
    held: list[Route] = []
    page.route("**/api/v1/status", lambda route: held.append(route))
    with page.expect_response(f"**/api/v1/{path}*"), page.expect_request("**/api/v1/status"):
        page.goto(f"{busy_shop.address}/{path.removeprefix('overview')}")
    page.evaluate(PAINTED)
    page.wait_for_selector(".loading", state="detached")
    page.evaluate(PAINTED)
    before = page.evaluate("window.shift")
    held[0].continue_()
    page.wait_for_selector(".fact:has-text('worker')")
    page.evaluate(PAINTED)
    moved = page.evaluate("window.shift") - before
    print(f"/{path}: shift {before:.4f} before the status, {moved:.4f} by it")
    assert before <= SHIFT
    assert moved <= STATUS_SHIFT


@pytest.mark.long
@pytest.mark.timed
@pytest.mark.timeout(SECONDS + 180)
def test_page_stays_quick_and_small_at_2000_transitions_per_second(context: BrowserContext, busy_shop: Shop) -> None:
    with loaded(busy_shop, TRANSITIONS):
        pages = [opened(context, busy_shop, path) for path in PAGES]
        for page in pages:
            page.wait_for_timeout(1000)
            page.evaluate("window.longTasks = []")
        before = [heap(page) for page in pages]
        busy = [cpu(page) for page in pages]
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            pages[0].wait_for_timeout(min(10_000, 1000 * max(0.0, ends - time.monotonic())))
        busy = [(cpu(page) - first) / SECONDS for page, first in zip(pages, busy, strict=True)]
        long_tasks = [page.evaluate("window.longTasks") for page in pages]
        growth = [heap(page) - first for page, first in zip(pages, before, strict=True)]
    print(f"{SECONDS:g} s: busy {busy}, long tasks {long_tasks} ms, heap {before} MB, growth {growth} MB")
    assert max(growth) <= GROWTH
    assert max(busy) <= BUSY
    for found in long_tasks:
        assert sum(each > LONG_TASK for each in found) <= MOST_LONG * SECONDS


def cpu(page: Page) -> float:
    """Seconds that the process of the page has used of a processor."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return float(metrics["ProcessTime"])


def heap(page: Page) -> float:
    """MB of live objects."""
    session = page.context.new_cdp_session(page)
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used / 1e6
