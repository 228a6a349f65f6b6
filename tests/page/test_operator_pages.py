"""Changes on the pages of schedules, sources and tasks, by an operator in Chromium."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from onthedot import App
from onthedot.model.worker_record import WORKERS, WorkerRecord, encode_worker_record
from onthedot.stores.contract import SeriesEntry
from tests.page.conftest import Shop, Watched
from tests.page.looks import await_role, visit
from tests.support.waits import SOON


def test_schedule_is_created_edited_run_paused_and_deleted(tab: Watched, shop: Shop) -> None:
    page = tab.page
    visit(tab, shop, "schedules")
    page.click("text=New schedule…")
    page.fill("dialog label:has-text('Name') input", "news")
    page.fill("dialog label:has-text('Source') input", "email")
    page.fill("dialog label:has-text('Arguments') input", '{"to": "ann@example.com"}')
    page.fill("dialog label:has-text('Rule') input", "0 25 * * *")
    page.wait_for_selector("dialog .preview .trouble")
    assert page.is_disabled("dialog button[type=submit]")
    page.fill("dialog label:has-text('Rule') input", "mon-fri 08:00")
    page.wait_for_selector("dialog .preview li >> nth=4")  # the next five runs, while one types
    page.click("dialog button[type=submit]")
    row = "tr:has(button:has-text('news'))"
    page.wait_for_selector(f"{row}:has-text('Mon–Fri at 08:00')")
    page.click(f"{row} >> text=Edit…")
    page.fill("dialog label:has-text('Rule') input", "every 2 h")
    page.wait_for_selector("dialog .preview:has-text('every 2 h')")
    page.click("dialog button[type=submit]")
    page.wait_for_selector(f"{row}:has-text('every 2 h')")
    page.click(f"{row} >> text=Run now")
    page.wait_for_selector(".notice:has-text('news runs now')")
    page.click(f"{row} >> text=Pause…")
    page.fill("dialog input", "holidays")
    page.click("dialog button[type=submit]")
    page.wait_for_selector(f"{row}:has-text('holidays')")
    page.click(f"{row} button[aria-label='Delete news?']")
    page.click("dialog button[type=submit]")
    page.wait_for_selector(row, state="detached")
    tab.troubles = [text for text in tab.troubles if "400 (Bad Request)" not in text]  # of the rule that is no rule


def test_all_tasks_of_a_filter_are_retried_with_a_progress_line(tab: Watched, shop: Shop) -> None:
    page = tab.page
    visit(tab, shop, "tasks?q=source%3Adeliver%20state%3Afailed")
    page.wait_for_selector("table.tasks tbody tr")
    page.click("text=Retry all that match…")
    page.wait_for_selector("dialog:has-text('Retry 4 tasks?')")
    assert page.locator("dialog .runs li").count() == 4
    page.fill("dialog label:has-text('Reason') input", "the vendor is back")
    page.click("dialog button[type=submit]")
    page.wait_for_selector(".progress-line:has-text('4 of 4, 4 changed · done')", timeout=SOON * 1000)


def test_group_of_failures_is_retried_slowly(tab: Watched, shop: Shop) -> None:
    page = tab.page
    visit(tab, shop, "failed")
    group = page.locator(".groups li:has-text('ConnectError')")
    group.get_by_role("button", name="Retry at 5/s…").click()
    assert page.input_value("dialog[open] label:has-text('Tasks per second') input") == "5"
    confirm = page.locator("dialog[open] button[type=submit]:not([disabled])")
    confirm.wait_for()  # its tasks are counted
    with page.expect_response("**/api/v1/tasks/retry") as answer:
        confirm.click()
    started = answer.value.json()
    assert (started["rate"], started["filter"].startswith("group:")) == (5, True)
    page.wait_for_selector(".progress-line:has-text('done')", timeout=SOON * 1000)


def test_source_is_limited_frozen_and_paused_with_a_banner(tab: Watched, shop: Shop) -> None:
    page = tab.page
    visit(tab, shop, "sources/email")
    page.click("text=Set a limit…")
    page.fill("dialog label:has-text('At once') input", "3")
    page.click("dialog button[type=submit]")
    page.wait_for_selector(".line:has-text('3 at once') .hint:has-text('by operator, ') time:has-text('ago')")
    page.click("text=Reset to code")
    page.wait_for_selector("text=Set a limit…")
    page.click("text=Freeze…")
    assert page.is_disabled("dialog button[type=submit]")
    page.fill("dialog input", "too many mails")
    page.click("dialog button[type=submit]")
    page.click("button:text-is('Thaw')")
    page.wait_for_selector(".notice:has-text('email accepts tasks again')")
    page.click("text=Pause…")
    page.fill("dialog input", "the vendor is down")
    page.click("dialog button[type=submit]")
    page.wait_for_selector(".paused-line:has-text('the vendor is down')", timeout=SOON * 1000)
    page.click(".paused-line >> text=Resume")
    page.wait_for_selector(".paused-line", state="detached", timeout=SOON * 1000)


def test_dead_worker_stays_grey_and_live_ones_name_their_runs(tab: Watched, shop: Shop) -> None:
    now = time.time_ns() // 1_000_000
    record = WorkerRecord(host="app-9", pid=7, written=now, done=4, rss=2**27, loop_lag=4000.0)

    async def write() -> None:
        async with App(shop.name, store=shop.store) as app:
            entry = SeriesEntry(WORKERS, now // 60_000 * 60_000, "dead-worker", encode_worker_record(record))
            await app.runtime.store.write_series([entry])

    with ThreadPoolExecutor(1) as pool:  # an event loop runs in this thread, that of Playwright
        pool.submit(lambda: asyncio.run(write())).result(SOON)
    visit(tab, shop, "workers")
    tab.page.wait_for_selector("tr.gone:has-text('app-9'):has-text('Died'):has-text('4.0 s')")
    tab.page.wait_for_selector("tr.gone:has-text('no task was lost')")
    assert tab.page.locator("tr:not(.gone):has-text('Alive')").count() == 1


def test_more_than_a_hundred_tasks_need_their_number_and_are_stopped(tab: Watched, shop: Shop) -> None:
    shop.run(
        "async def main():\n"
        "    async with shop.app:\n"
        "        for n in range(104):\n"
        "            await shop.resize.options(after=3600, tags=['night']).enqueue(f'{n}.png')\n"
    )
    page = tab.page
    visit(tab, shop, "tasks?q=tag%3Anight")
    page.wait_for_selector("table.tasks tbody tr")
    page.click("text=Cancel all that match…")
    page.wait_for_selector("dialog:has-text('Cancel 104 tasks?')")
    confirm = page.locator("dialog[open] button[type=submit]")
    number = page.locator("dialog label:has-text('Type 104 to confirm') input")
    assert confirm.is_disabled()
    for typed in ("103", "1040", ""):
        number.fill(typed)
        assert confirm.is_disabled(), typed
    number.press_sequentially("104")
    page.fill("dialog label:has-text('Tasks per second') input", "5")
    confirm.click()
    page.wait_for_selector(".progress-line:has-text('of 104')")
    page.click(".progress-line >> text=Stop")
    page.wait_for_selector(".progress-line:has-text('stopped')", timeout=SOON * 1000)
    changed = page.evaluate("""async () => {
        const {items} = await (await fetch("/api/v1/audit?limit=1")).json();
        return [items[0].state, items[0].found, items[0].changed];
    }""")
    assert changed[:2] == ["stopped", 104]
    assert 0 < changed[2] < 104


def test_retry_whose_unique_key_is_taken_names_the_holder(tab: Watched, shop: Shop) -> None:
    failed, holder = shop.run(
        "async def main():\n"
        "    async with shop.app:\n"
        "        failed = await shop.email.options(after=3600, unique='mail-1').enqueue('ann@example.com')\n"
        "        await failed.cancel()\n"
        "        holder = await shop.email.options(after=3600, unique='mail-1').enqueue('ben@example.com')\n"
        "        print(failed.uuid, holder.uuid)\n"
    ).split()
    page = tab.page
    visit(tab, shop, f"tasks/{failed}")
    await_role(tab)
    page.keyboard.press("r")
    page.wait_for_selector("dialog[open]")
    page.click("dialog[open] button[type=submit]")
    page.wait_for_selector(f"dialog[open] [role=alert]:has-text('{holder}')")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    assert page.url.endswith(failed), "the conflict keeps the page"
    tab.troubles = [text for text in tab.troubles if "409 (Conflict)" not in text]
