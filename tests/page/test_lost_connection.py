"""A stream of changes that is lost for a while, and streams that nobody reads."""

from __future__ import annotations

import re
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults import scaled
from tests.page.conftest import TOKEN, Shop
from tests.page.load import loaded
from tests.page.screen_delay import GATE_SHOP, api
from tests.support.counting_proxy import counting_proxy
from tests.support.waits import SOON, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OUTAGE = 3.0  # seconds
CLIENTS = 10
MOST = 2.0  # MiB of one
SECONDS = scaled(5, 60)
LIVE = ".connection.live:has-text('live')"
SHOWN = """() => Object.fromEntries([...document.querySelectorAll("table.tasks tr[data-uuid]")].map((row) => [
    row.dataset.uuid, row.querySelector(".state").className.replace("state state-", "")
]))"""


@pytest.fixture
def busy_shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, GATE_SHOP, "gates")


def test_page_is_right_again_after_its_stream_was_lost(chromium: Browser, busy_shop: Shop, tmp_path: Path) -> None:
    with busy_shop.both(), counting_proxy(busy_shop.port) as proxy:
        gate = {"source": "gate", "args": {"folder": str(tmp_path), "number": 1}}
        ended = api(busy_shop, "/tasks", gate)["uuid"]
        context = chromium.new_context(reduced_motion="reduce")
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{proxy.port}/tasks?token={TOKEN}")
        page.wait_for_selector(LIVE, timeout=SOON * 1000)
        row = f"tr[data-uuid='{ended}']"
        page.wait_for_selector(f"{row} .state-running", timeout=SOON * 1000)
        with loaded(busy_shop, 100):
            page.wait_for_selector("button.fresh", timeout=SOON * 1000)
            proxy.is_refusing = True
            proxy.cut()
            page.wait_for_selector(LIVE, state="detached", timeout=SOON * 1000)
            (tmp_path / "1").touch()
            time.sleep(OUTAGE)
            assert page.locator(f"{row} .state-running").count() == 1
            proxy.is_refusing = False
            page.wait_for_selector(LIVE, timeout=SOON * 1000)
            page.wait_for_selector(f"{row} .state-succeeded", timeout=SOON * 1000)
        wait_until(lambda: api(busy_shop, "/tasks?q=state:running")["items"] == [])
        newest = {task["uuid"]: "succeeded" for task in api(busy_shop, "/tasks?limit=50")["items"]}

        from playwright.sync_api import TimeoutError as PlaywrightTimeout

        def shows_newest() -> bool:
            fresh = page.locator("button.fresh")
            if fresh.count():
                with suppress(PlaywrightTimeout):  # it has gone meanwhile
                    fresh.click(timeout=1000)
            return bool(page.evaluate(SHOWN) == newest)

        wait_until(shows_newest)
        context.close()


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
