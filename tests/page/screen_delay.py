"""The time from the end of a task to the screen, on Overview, Tasks and Task: tabs of one Chromium."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.page.checkout import ROOT
from tests.page.conftest import TOKEN, Shop
from tests.support.waits import SOON, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

GATE_SHOP = ROOT / "tests" / "page" / "gate_shop.py"
AT_ONCE = 40  # tasks of one list: the API takes so many additions in a burst
_RUNNING = "document.querySelector(\".tile:has(a[href*='running']) dd\")?.textContent"
_LOOKS = {
    "overview": f"note({_RUNNING});",
    "tasks": """
        for (const row of document.querySelectorAll("table.tasks tr[data-uuid]")) {
            if (row.querySelector(".state-succeeded")) note(row.dataset.uuid);
        }
    """,
    "task": """
        if (document.querySelector(".task-title .state-succeeded")) {
            note(document.querySelector(".id-line code").textContent);
        }
    """,
}
"""Code that notes the keys of the ends that a page shows: of Overview, the number of tasks that run still."""
PAGES = tuple(_LOOKS)
_WATCH = """() => {
    window.seen = {};
    window.watcher?.disconnect();
    const note = (key) => requestAnimationFrame(() => (window.seen[key] ??= Date.now()));
    window.watcher = new MutationObserver(() => { LOOK });
    window.watcher.observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
}"""
_OPEN = """(path) => {
    history.pushState(null, "", path);
    dispatchEvent(new PopStateEvent("popstate"));
}"""


def p95(values: Sequence[float]) -> float:
    """The highest of a few."""
    return sorted(values)[max(0, -(-len(values) * 95 // 100) - 1)]


def api(shop: Shop, path: str, body: object = None) -> Any:
    """GET, or POST of a body."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{shop.address}/api/v1{path}", data, headers)) as answer:
        return json.load(answer)


class Screen:
    """Tabs of a page whose worker runs `gate_shop`."""

    def __init__(self, chromium: Browser, shop: Shop, folder: Path, pages: Sequence[str] = PAGES) -> None:
        """folder: of the files that end tasks."""
        self._shop = shop
        self._folder = folder
        self._context = chromium.new_context(reduced_motion="reduce", bypass_csp=True)
        self._tabs: dict[str, Page] = {}
        for page in pages:
            self._tabs[page] = self._context.new_page()
            self._open(page)
        self._number = 0

    def close(self) -> None:
        self._context.close()

    def _open(self, page: str) -> None:
        tab = self._tabs[page]
        tab.goto(f"{self._shop.address}/{'' if page == 'overview' else 'tasks'}?token={TOKEN}")
        tab.wait_for_selector(".connection.live:has-text('live')", timeout=SOON * 1000)

    def measure(self, number: int, shortest: float) -> dict[str, list[float]]:
        """The milliseconds of each task on each page. shortest: seconds between two ends."""
        found: dict[str, list[float]] = {page: [] for page in self._tabs}
        for begin in range(0, number, AT_ONCE):
            self._measure_list(min(AT_ONCE, number - begin), shortest, found)
        return found

    def _measure_list(self, number: int, shortest: float, found: dict[str, list[float]]) -> None:
        gates = {self._add(gate): gate for gate in range(self._number, self._number + number)}
        self._number += number
        wait_until(lambda: len(api(self._shop, "/tasks?q=state:running")["items"]) == number)
        for page, tab in self._tabs.items():
            self._open(page)
            if page == "overview":
                tab.wait_for_function(f"{_RUNNING} === '{number}'")
            else:
                tab.wait_for_function(f"document.querySelectorAll('table.tasks .state-running').length === {number}")
            tab.evaluate(_WATCH.replace("LOOK", _LOOKS[page]))
        order = list(gates.items())
        random.shuffle(order)
        for ended, (uuid, gate) in enumerate(order, 1):
            if "task" in self._tabs:
                self._tabs["task"].evaluate(_OPEN, f"{self._shop.address}/tasks/{uuid}")
                self._tabs["task"].wait_for_selector(f".id-line code:has-text('{uuid}')")
            time.sleep(shortest + random.random() / 4)  # not in step with anything that reads
            Path(self._folder, str(gate)).touch()
            seen = {page: self._seen(page, str(number - ended) if page == "overview" else uuid) for page in self._tabs}
            ended_at = datetime.fromisoformat(api(self._shop, f"/tasks/{uuid}")["ended_at"]).timestamp() * 1000
            for page, at in seen.items():
                found[page].append(at - ended_at)

    def _add(self, gate: int) -> str:
        """The uuid of a task that ends with the file of this name."""
        added = api(self._shop, "/tasks", {"source": "gate", "args": {"folder": str(self._folder), "number": gate}})
        return str(added["uuid"])

    def _seen(self, page: str, key: str) -> float:
        tab = self._tabs[page]
        tab.wait_for_function("(key) => window.seen[key]", arg=key, timeout=SOON * 1000)
        return float(tab.evaluate("(key) => window.seen[key]", key))
