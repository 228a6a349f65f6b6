"""Flows in Chromium: watched while they run, cancelled and retried there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults import scaled
from tests.page.conftest import Shop, Watched, watched_tab
from tests.page.event_fills import XSS
from tests.page.looks import assert_fits_and_is_accessible, await_role, visit
from tests.support.waits import SOON

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LONG = SOON * 1000  # ms
PARTS = scaled(300, 9_996)  # with the four others the largest flow that has a graph
DRAIN = LONG * scaled(1, 10)
TIMEOUT = scaled(180, 1200)


@pytest.fixture
def tab(chromium: Browser, studio: Shop) -> Iterator[Watched]:
    with watched_tab(chromium, studio) as watched:
        yield watched


def run(studio: Shop, *lines: str) -> str:
    """Statements of a coroutine in a process of its own; `studio` is the module of the app."""
    body = "".join(f"        {line}\n" for line in lines)
    return studio.run(f"async def main():\n    studio = flow_shop\n    async with studio.app:\n{body}")


def wait_for_live(tab: Watched) -> None:
    tab.page.wait_for_selector(".connection.live:has-text('live')")


def test_an_empty_store_shows_how_to_write_a_flow(tab: Watched, studio: Shop) -> None:
    """The first test of this store."""
    visit(tab, studio, "flows")
    assert "group(" in tab.page.inner_text(".empty pre")
    assert_fits_and_is_accessible(tab)


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT)
def test_a_flow_is_watched_and_retried_on_its_page(tab: Watched, studio: Shop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    flow = run(
        studio,
        "await studio.app.operations.pause('clean', reason='until the page is open')",
        f"print((await studio.nightly('retried', {PARTS}, {str(gate)!r}).enqueue()).uuid)",
    )
    visit(tab, studio, f"flows/{flow}")
    wait_for_live(tab)
    tab.page.wait_for_selector(".node-succeeded:has-text('extract')", timeout=LONG)
    tab.page.wait_for_selector(f".node-waiting:has-text('waits for {PARTS:,} of {PARTS + 1:,}')", timeout=LONG)
    run(studio, "await studio.app.operations.resume('clean')")
    tab.page.wait_for_selector(".task-title .state-failed", timeout=DRAIN)
    failed = len([part for part in range(PARTS) if part % 7 == 3])
    tab.page.wait_for_selector(f".node-failed:has-text('{failed:,} of {PARTS:,} failed')", timeout=LONG)
    assert counts(studio, flow) == {"done": PARTS + 4, "failed": failed + 2, "total": PARTS + 4}
    tab.page.wait_for_selector("text=of retried is not there")
    assert_fits_and_is_accessible(tab)
    gate.touch()
    tab.page.click(f"button:has-text('Retry {failed + 2:,}…')")
    assert f"{failed + 2:,} tasks run again" in tab.page.inner_text("dialog")
    tab.page.fill("dialog label:has-text('Reason') input", "the parts are there")
    tab.page.click("dialog button[type=submit]")
    tab.page.wait_for_selector(f".progress-line:has-text('{failed + 2:,} of {failed + 2:,}')", timeout=DRAIN)
    tab.page.wait_for_selector(".task-title .state-succeeded", timeout=DRAIN)
    tab.page.wait_for_selector(f".flow-done:has-text('{PARTS + 4:,} of {PARTS + 4:,}')", timeout=LONG)
    assert counts(studio, flow) == {"done": PARTS + 4, "failed": 0, "total": PARTS + 4}


def counts(studio: Shop, flow: str) -> dict[str, int]:
    """As the command line shows them."""
    progress = studio.command("flow", "show", flow)["flow"]["flow"]["progress"]
    return {name: progress[name] for name in ("done", "failed", "total")}


def test_a_flow_is_cancelled_on_its_page(tab: Watched, studio: Shop) -> None:
    flow = run(
        studio,
        "await studio.app.operations.pause('score', reason='so that the flow lives')",
        "print((await studio.nightly('cancelled', 200).enqueue()).uuid)",
    )
    visit(tab, studio, f"flows/{flow}")
    tab.page.wait_for_selector(".node-succeeded:has-text('clean')", timeout=LONG)
    tab.page.wait_for_selector("text=What the last task waits for")
    await_role(tab)
    tab.page.keyboard.press("c")
    tab.page.wait_for_selector("dialog:has-text('3 tasks of it have not ended')")
    tab.page.fill("dialog label:has-text('Reason') input", "wrong day")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector(".task-title .state-cancelled", timeout=LONG)
    tab.page.wait_for_selector(".flow-done:has-text('204 of 204')", timeout=LONG)
    reasons = run(
        studio,
        "await studio.app.operations.resume('score')",
        f"page = await studio.app.operations.find(flow={flow!r}, state='cancelled')",
        "print(sorted(task.source for task in page), {task.reason for task in page})",
    )
    assert reasons == "['merge', 'report', 'score'] {'wrong day'}"


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT)
def test_a_large_flow_is_cancelled_on_its_page(tab: Watched, studio: Shop) -> None:
    """All but its first task live."""
    flow = run(
        studio,
        "await studio.app.operations.pause('clean', reason='so that the flow lives')",
        "await studio.app.operations.pause('score', reason='so that the flow lives')",
        f"print((await studio.nightly('large', {PARTS}).enqueue()).uuid)",
    )
    total = PARTS + 4
    visit(tab, studio, f"flows/{flow}")
    tab.page.wait_for_selector(".node-succeeded:has-text('extract')", timeout=DRAIN)
    wait_for_live(tab)
    tab.page.click("button:has-text('Cancel…')", timeout=LONG)
    tab.page.wait_for_selector(f"dialog:has-text('{total - 1:,} tasks of it have not ended')")
    tab.page.fill("dialog label:has-text('Reason') input", "wrong day")
    began = time.monotonic()
    tab.page.click("dialog button[type=submit]")
    tab.page.wait_for_selector(".task-title .state-cancelled", timeout=DRAIN)
    tab.page.wait_for_selector(f".flow-done:has-text('{total:,} of {total:,}')", timeout=DRAIN)
    print(f"{total:,} tasks cancelled within {time.monotonic() - began:.1f} s")
    assert tab.page.inner_text(".bad-number") == f"{total - 1:,}"
    assert counts(studio, flow) == {"done": total, "failed": total - 1, "total": total}
    run(studio, "for source in ('clean', 'score'):", "    await studio.app.operations.resume(source)")


def test_cancel_of_a_flow_is_stopped_on_its_page(tab: Watched, studio: Shop) -> None:
    flow = run(
        studio,
        "await studio.app.operations.pause('clean', reason='so that the flow lives')",
        "print((await studio.nightly('stopped', 200).enqueue()).uuid)",
    )
    visit(tab, studio, f"flows/{flow}")
    tab.page.click("button:has-text('Cancel…')", timeout=LONG)
    tab.page.fill("dialog label:has-text('Tasks per second') input", "0.1")  # the flow would live for half an hour
    tab.page.click("dialog button[type=submit]")
    tab.page.click(".progress-line button:has-text('Stop')", timeout=LONG)
    tab.page.wait_for_selector(".progress-line:has-text('stopped')", timeout=LONG)
    shown = run(
        studio,
        f"flow = studio.app.aflow({flow!r})",
        "print((await flow.cancel()) > 100)",
        "await studio.app.operations.resume('clean')",
    )
    assert shown == "True"


def test_arrow_keys_follow_the_edges_of_a_flow(tab: Watched, studio: Shop) -> None:
    flow = run(studio, "print((await studio.nightly('keys', 2).enqueue()).uuid)")
    visit(tab, studio, f"flows/{flow}")
    tab.page.wait_for_selector(".task-title .state-succeeded", timeout=LONG)
    tab.page.focus(".node[tabindex='0']")
    passed: list[str] = []
    for key in ("ArrowRight", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowRight", "ArrowLeft"):
        tab.page.keyboard.press(key)
        passed.append(tab.page.inner_text(":focus b"))
    assert set(passed[:2]) == {"clean", "score"}
    assert passed[2:] == [passed[0], "merge", "report", "merge"]
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**/tasks/*")
    visit(tab, studio, f"flows/{flow}")
    tab.page.click("button:has-text('as table')")
    tab.page.click("tr:has-text('clean') a")
    tab.page.wait_for_url("**/tasks?q=flow*")
    tab.page.wait_for_selector("table.tasks tbody tr >> nth=1")
    assert tab.page.locator("table.tasks tbody tr").count() == 2


def test_markup_in_labels_and_errors_of_flows_stays_text(tab: Watched, studio: Shop) -> None:
    flow = run(
        studio,
        f"handle = await studio.nightly({XSS!r}, 4, '/nothing').enqueue()",
        "try:",
        f"    await handle.result(timeout={SOON})",
        "except Exception:",
        "    print(handle.uuid)",
    )
    for path in ("flows", f"flows/{flow}"):
        visit(tab, studio, path)
        tab.page.wait_for_selector(f"text={XSS[:20]}")
        assert tab.page.evaluate("window.attacked") is None
        assert tab.page.locator("main img").count() == 0
    visit(tab, studio, "flows?state=failed")
    assert_fits_and_is_accessible(tab)
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector(".graph-box")
