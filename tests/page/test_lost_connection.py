"""A stream of changes that is lost for a while, and streams that nobody reads."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults import scaled
from tests.page.conftest import TOKEN, Shop
from tests.page.load import loaded
from tests.page.screen_delay import GATE_SHOP, api
from tests.support.counting_proxy import counting_proxy
from tests.support.waits import SOON, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OUTAGE = 3.0  # seconds
CLIENTS = 10
MOST = 2.0  # MiB of one
SECONDS = scaled(5, 60)
LIVE = ".connection.live:has-text('live')"
SHOWN = """() => [...document.querySelectorAll("table.tasks tr[data-uuid]")].map((row) => [
    row.dataset.uuid, row.querySelector(".state").className.replace("state state-", "")
])"""
NOTE = """
window.opened = 0;
window.streamed = [];
window.EventSource = class extends EventSource {
    constructor(url) {
        super(url);
        window.opened += 1;
    }
    addEventListener(name, listener) {
        super.addEventListener(name, (event) => {
            window.streamed.push([name, event.data]);
            listener(event);
        });
    }
};
"""
KEPT = scaled(1_000, 100_000)  # transitions; the short form bounds the log by so many
PAUSE = scaled(2, 5)  # seconds
AGAIN = 1.0  # second after which a page is right
OVERFLOW = f"""
from onthedot.stores.sqlite import side_tables
side_tables.MAX_TRANSITIONS = {KEPT}
async def main():
    async with gate_shop.app:
        for _ in range({KEPT} // 1000 + 1):
            await gate_shop.nothing.enqueue_many([{{}}] * 1000)
"""
STEPS = ("ready", "running", "succeeded")  # the transitions of a task
READY = "document.querySelector('.tabs a:has(.state-ready) .count')?.title.replaceAll(',', '')"


@pytest.fixture
def busy_shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, GATE_SHOP, "gates")


def open_tasks(chromium: Browser, port: int) -> Page:
    page = chromium.new_context(reduced_motion="reduce").new_page()
    page.add_init_script(NOTE)
    page.goto(f"http://127.0.0.1:{port}/tasks?token={TOKEN}")
    page.wait_for_selector(LIVE, timeout=SOON * 1000)
    return page


def add_gate(shop: Shop, folder: Path) -> str:
    """A task that runs until the file `1` is there."""
    return str(api(shop, "/tasks", {"source": "gate", "args": {"folder": str(folder), "number": 1}})["uuid"])


def await_newest(page: Page, shop: Shop) -> None:
    """Until the page shows the newest tasks as the API has them, each once."""
    newest = [[task["uuid"], task["state"]] for task in api(shop, "/tasks?limit=50")["items"]]

    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    def shows_newest() -> bool:
        fresh = page.locator("button.fresh")
        if fresh.count():
            with suppress(PlaywrightTimeout):  # it has gone meanwhile
                fresh.click(timeout=1000)
        return bool(page.evaluate(SHOWN) == newest)

    wait_until(shows_newest)


def streamed(page: Page, name: str) -> list[Any]:
    """The data of the messages of this name that the page has got."""
    return [json.loads(data or "null") for kind, data in page.evaluate("window.streamed") if kind == name]


def test_transitions_of_a_lost_stream_are_replayed(chromium: Browser, busy_shop: Shop, tmp_path: Path) -> None:
    with busy_shop.both(), counting_proxy(busy_shop.port) as proxy:
        page = open_tasks(chromium, proxy.port)
        wait_until(lambda: streamed(page, "hello"))
        begun = page.evaluate("[window.opened, window.streamed.length]")[0]
        row = f"tr[data-uuid='{add_gate(busy_shop, tmp_path)}']"
        page.wait_for_selector(f"{row} .state-running", timeout=SOON * 1000)
        with loaded(busy_shop, 100):
            page.wait_for_selector("button.fresh", timeout=SOON * 1000)
            first_resets = streamed(page, "reset")  # the stream began after the page was read
            proxy.is_refusing = True
            proxy.cut()
            page.wait_for_selector(LIVE, state="detached", timeout=SOON * 1000)
            (tmp_path / "1").touch()
            time.sleep(OUTAGE)
            assert page.locator(f"{row} .state-running").count() == 1
            before = len(streamed(page, "transitions"))
            proxy.is_refusing = False
            page.wait_for_selector(LIVE, timeout=SOON * 1000)
            page.wait_for_selector(f"{row} .state-succeeded", timeout=SOON * 1000)
        wait_until(lambda: {"succeeded": number(streamed(page, "transitions")) / len(STEPS)} == states(busy_shop))
        await_newest(page, busy_shop)
        messages = streamed(page, "transitions")
        listed = Counter((each["uuid"], each["state"]) for message in messages for each in message["transitions"])
        replayed = messages[before]
        print(f"{number([replayed])} of {number(messages)} transitions were replayed, {replayed['more']} as a number")
        assert streamed(page, "reset") == first_resets
        assert page.evaluate("window.opened") == begun, "the browser continues its stream"
        assert number([replayed]) >= OUTAGE * 50
        assert listed.most_common(1)[0][1] == 1, "a transition came twice"
        page.context.close()


def number(messages: list[Any]) -> int:
    """Of their transitions: above 200 that wait, the older ones are counted only."""
    return sum(len(message["transitions"]) + message["more"] for message in messages)


def states(shop: Shop) -> dict[str, int]:
    """The number of tasks by state."""
    counts = api(shop, "/tasks?counts=1&limit=1")["counts"]
    return {state: each["n"] for state, each in counts.items() if each["n"]}


@pytest.mark.long
@pytest.mark.timed
def test_page_is_right_a_second_after_its_feed_has_missed_more_than_the_log_keeps(
    chromium: Browser, busy_shop: Shop, tmp_path: Path
) -> None:
    with busy_shop.worker(), busy_shop.page() as pid:
        api(busy_shop, "/sources/nothing/pause", {"reason": "so that they stay ready"})
        row = f"tr[data-uuid='{add_gate(busy_shop, tmp_path)}']"
        page = open_tasks(chromium, busy_shop.port)
        page.wait_for_selector(f"{row} .state-running", timeout=SOON * 1000)
        os.kill(pid, signal.SIGSTOP)
        first_resets = streamed(page, "reset")
        try:
            paused = time.monotonic()
            (tmp_path / "1").touch()
            busy_shop.run(OVERFLOW)
            time.sleep(max(0.0, PAUSE - (time.monotonic() - paused)))
            assert streamed(page, "reset") == first_resets
        finally:
            resumed = time.monotonic()
            os.kill(pid, signal.SIGCONT)
        added = (KEPT // 1000 + 1) * 1000
        wait_until(lambda: page.evaluate(READY) == str(added) and page.locator(f"{row} .state-succeeded").count())
        took = time.monotonic() - resumed
        print(f"right {took:.2f} s after {added:,} transitions within {resumed - paused:.1f} s")
        assert streamed(page, "reset") == [*first_resets, None]
        assert took <= AGAIN
        await_newest(page, busy_shop)
        page.context.close()


@pytest.mark.long
def test_streams_that_nobody_reads_cost_little_memory(busy_shop: Shop) -> None:
    request = (
        f"GET /api/v1/changes?watch=tasks HTTP/1.1\r\nHost: 127.0.0.1:{busy_shop.port}\r\n"
        f"Authorization: Bearer {TOKEN}\r\n\r\n"
    )
    with ExitStack() as stack:
        stack.enter_context(busy_shop.worker())
        pid = stack.enter_context(busy_shop.page())
        stack.enter_context(loaded(busy_shop, 2000))
        api(busy_shop, "/overview")
        before = memory(pid)
        for _ in range(CLIENTS):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", busy_shop.port), SOON))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(request.encode())
        time.sleep(SECONDS)
        cost = (memory(pid) - before) / CLIENTS
    print(f"{cost:.2f} MiB per stream after {SECONDS:g} s")
    assert cost <= MOST


def memory(pid: int) -> float:
    """MiB of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
