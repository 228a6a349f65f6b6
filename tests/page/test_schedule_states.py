"""Schedules that are paused, orphaned or invalid, and windows that failed or were skipped, in Chromium."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec.structs import replace

from onthedot import App, IntervalSchedule
from onthedot.clock.epoch import to_ms
from onthedot.clock.manual import ManualClock
from onthedot.schedules.windows import nominal_uuid
from onthedot.testing import TestApp
from tests.page.conftest import watched_tab
from tests.page.looks import visit
from tests.support.web_site import OPERATOR_TOKEN, WebSite, web_site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BEGIN = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=8)  # pages ask for the last hour
CLEANED = 3  # runs of the schedule that code declared once
STATES = {
    "broken": "Invalid", "flaky": "Active", "holiday": "Paused", "old_clean": "Orphan", "slow": "Active",
    "steady": "Active",
}  # fmt: skip
ROWS = """() => Object.fromEntries([...document.querySelectorAll("main tbody tr:not(.detail)")].map((row) => [
    row.querySelector("[data-open]").textContent.trim(), {
        state: row.querySelector("td.state-column").innerText.trim(),
        dots: [...row.querySelectorAll(".dots i")].map((dot) => dot.className.replace("dot-", "")),
        buttons: [...row.querySelectorAll("td.actions button")].map((each) => each.textContent.trim() || each.title),
        next: row.querySelector("td.time").innerText.trim(),
    },
]))"""
RUNS = """() => [...document.querySelectorAll("tr.detail .runs .state")].map((each) =>
    each.className.replace("state state-", ""))"""


def new_app() -> App[Any]:
    app: App[Any] = App("shop", stop_timeout=0)

    @app.schedule(IntervalSchedule(60), max_retries=0)
    async def flaky() -> None:
        raise ValueError("no")

    @app.schedule(IntervalSchedule(60), max_retries=1, backoff=90)
    async def slow() -> None:
        raise ValueError("again")

    @app.schedule(IntervalSchedule(60))
    async def steady() -> None: ...

    @app.schedule(IntervalSchedule(60))
    async def holiday() -> None: ...

    return app


@asynccontextmanager
async def filled_site() -> AsyncIterator[WebSite]:
    """Seven minutes of windows; then the clock stands still."""
    app = new_app()
    with TestApp(app, ManualClock(BEGIN)) as test:
        async with app, web_site(app) as site:
            await test.advance(minutes=3, seconds=30)
            for name in ("flaky", "holiday"):
                await site.operator.post(f"/schedules/{name}/pause", {"reason": "quiet days"})
            await test.advance(minutes=2)
            await site.operator.post("/schedules/flaky/resume", {})
            await test.advance(minutes=2)
            await add_broken_ones(app, test)
            async with app.running():
                yield site


async def add_broken_ones(app: App[Any], test: TestApp) -> None:
    """One that no code declares any more, and one whose rule cannot be read."""
    store = app.runtime.store
    found = {each.name: each for each in await store.schedules()}
    for minute in range(CLEANED):
        at = to_ms(BEGIN + timedelta(minutes=5 + minute))
        await app.named("steady").options(uuid=nominal_uuid("old_clean", at)).enqueue()
    await test.run_until_idle()
    await store.put_schedules([
        replace(found["steady"], name="old_clean", rev=0), replace(found["steady"], name="broken", rule=b"{", rev=0),
    ])  # fmt: skip


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    """An event loop beside that of the browser."""
    with start_blocking_portal() as found:
        yield found


def test_states_and_dots_of_schedules_are_those_of_their_runs(chromium: Browser, portal: BlockingPortal) -> None:
    with (
        portal.wrap_async_context_manager(filled_site()) as site,
        watched_tab(chromium, site, OPERATOR_TOKEN) as tab,
    ):
        visit(tab, site, "schedules")
        tab.page.wait_for_selector("main td.actions button")
        rows = {row["name"]: row for row in portal.call(site.viewer.json, "/schedules")["items"]}
        shown = tab.page.evaluate(ROWS)
        assert {name: each["state"] for name, each in shown.items()} == STATES
        dots = {name: [run["state"] for run in row["runs"]] for name, row in rows.items()}
        assert {name: each["dots"] for name, each in shown.items()} == dots
        assert dots == {name: portal.call(states_of_tasks, site, row) for name, row in rows.items()}
        assert dots["flaky"] == ["failed"] * 3 + ["none"] * 2 + ["failed"] * 2
        assert dots["old_clean"] == ["succeeded"] * CLEANED
        assert dots["holiday"] == ["succeeded"] * 3
        assert dots["slow"].count("none") == rows["slow"]["skipped"]["overlap"] > 0
        for name, buttons in (("old_clean", ["Delete"]), ("broken", [])):
            assert (shown[name]["next"], shown[name]["buttons"]) == ("does not fire", buttons), name
        for name in ("flaky", "slow"):
            check_runs(tab.page, name, dots[name])


async def states_of_tasks(site: WebSite, row: dict[str, Any]) -> list[str]:
    """Of the tasks of the windows of a schedule, each asked for alone; none: there is no such task."""
    answers = await asyncio.gather(*(site.viewer.get(f"/tasks/{run['uuid']}") for run in row["runs"]))
    return ["none" if answer.status == 404 else answer.json()["state"] for answer in answers]


def check_runs(page: Page, name: str, dots: list[str]) -> None:
    """The open row of a schedule lists the same runs, the newest first."""
    page.click(f"[data-open]:has-text('{name}')")
    page.wait_for_selector("tr.detail .runs .state")
    assert page.evaluate(RUNS) == dots[::-1]
    page.click(f"[data-open]:has-text('{name}')")
