"""``onthedot dev`` with its page in Chromium: an empty folder, one file, a save."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.page.conftest import Watched
from tests.support.process_guard import start_guarded
from tests.support.waits import SOON, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ONTHEDOT = [sys.executable, "-m", "onthedot"]
APP = """
from onthedot import App

app = App("first", store="sqlite:///first.db")


@app.task(label="for {name}")
async def greet(name: str) -> str:
    return f"hello {name}"
"""


def test_saved_file_reloads_the_worker_and_the_open_tab_stays_live(chromium: Browser, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    environment = {**os.environ, "ONTHEDOT_STORE": "sqlite:///first.db"}
    log = tmp_path / "log"

    def add(name: str) -> None:
        subprocess.run(
            [*ONTHEDOT, "-A", "app.py", "add", "greet", f"name={name}"],
            cwd=tmp_path, env=environment, check=True, capture_output=True,
        )  # fmt: skip

    began = time.monotonic()
    with log.open("w") as output:
        process = start_guarded([*ONTHEDOT, "dev", "app.py", "--port", "0"], cwd=tmp_path, stdout=output, stderr=output)
    try:
        wait_until(lambda: "/?token=" in log.read_text())
        address = log.read_text().split()[1]
        context = chromium.new_context(reduced_motion="reduce")
        tab = Watched(context.new_page(), address.partition("/?")[0])
        failed: list[str] = []
        tab.page.on("response", lambda response: failed.append(response.url) if response.status >= 500 else None)
        tab.page.on("requestfailed", lambda request: failed.append(f"{request.url}: {request.failure}"))
        tab.page.goto(address)
        tab.page.wait_for_selector(".connection.live:has-text('live')", timeout=SOON * 1000)
        print(f"start to live page: {time.monotonic() - began:.2f} s")
        tab.page.goto(f"{address.partition('?')[0]}tasks")
        tab.page.wait_for_selector(".connection.live:has-text('live')", timeout=SOON * 1000)
        failed.clear()  # a stream ends with its view
        app.write_text(APP.replace("hello", "good day"))
        wait_until(lambda: log.read_text().count("worker ready") == 2)
        add("ann")
        tab.page.wait_for_selector("text=for ann", timeout=SOON * 1000)
        tab.page.wait_for_selector("table.tasks .state-succeeded", timeout=SOON * 1000)
        assert tab.page.locator(".connection.live").count() == 1
        assert failed == []
        assert tab.troubles == []
        context.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(SOON) == 0
    finally:
        process.kill()
        process.wait()
