"""The page with a million tasks in the store: 95 % have ended, 505 old ones have failed, 1,000 wait for a signal.

Beside them tasks run, are scheduled and were cancelled, and there is a flow of 1,000 tasks and a batch.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.flow_stores import STORES
from benchmarks.report import Figure
from onthedot.web.routes import READ_ROUTES
from tests.page.conftest import TOKEN, Shop, started_chromium
from tests.page.screen_delay import p95
from tests.support.waits import SOON

if TYPE_CHECKING:
    from playwright.sync_api import Page

_ROOT = Path(__file__).parents[1]
_PROGRAMS = Path(__file__).parent / "programs"
_COUNT = 1_000_000
_ROUNDS = 40  # of requests to each route
_LOADS = 5  # of each page
_VIEWS = 500
_WARM = 100  # views before memory is read for the first time
_API = 50.0  # ms, p95
_LOAD = 200.0  # ms
_REQUESTS = 3
_GROWTH = 10.0  # MB
_SLOWEST = 3  # that the report names
_PAGES = (
    "", "tasks", "tasks?q=state%3Afailed", "tasks?q=state%3Aready", "tasks?q=state%3Awaiting",
    "tasks?q=state%3Arunning", "tasks?q=state%3Ascheduled", "tasks?q=state%3Acancelled",
    "tasks?q=state%3Asucceeded+source%3Athird", "tasks/{uuid}", "tasks/{failed}", "failed", "sources", "sources/rare",
    "schedules", "workers", "flows", "flows/{flow}", "batches", "batches/{batch}", "waiting", "outbox", "agents",
    "audit",
)  # fmt: skip
_IS_SHOWN = """() => {
    const main = document.querySelector("main");
    return main && main.querySelector("h1, .empty") && !main.querySelector(".loading");
}"""
_OPEN = """(path) => new Promise((resolve) => {
    const isShown = IS_SHOWN;
    const began = performance.now();
    history.pushState(null, "", path);
    dispatchEvent(new PopStateEvent("popstate"));
    const look = () => isShown() ? resolve(performance.now() - began) : requestAnimationFrame(look);
    requestAnimationFrame(look);
})""".replace("IS_SHOWN", _IS_SHOWN)


class Filled(NamedTuple):
    """uuid, failed: of two of its tasks."""

    store: str
    uuid: str
    failed: str
    flow: str
    batch: str


def _fill(store: str, count: int) -> Filled:
    settings = {"BENCH_STORE": store, "BENCH_COUNT": str(count), "PYTHONPATH": str(_ROOT / "src")}
    ended = _run("find_app.py", settings, "fill")
    others = _run("page_fill_app.py", settings)
    return Filled(store, ended["middle"], ended["failed"], others["flow"], others["batch"])


def _run(program: str, settings: dict[str, str], *arguments: str) -> Any:
    """The JSON that it writes."""
    done = subprocess.run(
        [sys.executable, str(_PROGRAMS / program), *arguments],
        env={**os.environ, **settings},
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def _million(kind: str, scale: float) -> list[Figure]:
    with STORES[kind]() as new_store, tempfile.TemporaryDirectory(prefix="onthedot-bench-") as folder:
        filled = _fill(new_store(), int(_COUNT * scale))
        shop = Shop(Path(folder), name="bench", store=filled.store)
        with shop.page() as pid:
            times = _answers(shop, filled)
            with started_chromium() as chromium:
                tab = chromium.new_context(bypass_csp=True).new_page()
                tab.goto(f"{shop.address}/?token={TOKEN}")
                tab.wait_for_selector(".connection.live:has-text('live')", timeout=SOON * 1000)
                loads, requests = _loads(tab, shop, filled)
                growth = _memory_growth(tab, shop, filled, pid, max(30, int(_VIEWS * scale)))
    _print(kind, times, loads, requests)
    slowest = max(times, key=lambda path: times[path])
    heaviest = max(loads, key=lambda path: loads[path])
    return [
        Figure(times[slowest], _API, "ms", f"{kind}: slowest route, p95: `GET {slowest}`", 1, least=False),
        Figure(_median(times), _API, "ms", f"{kind}: p95 of the middle route", 1, least=False),
        Figure(loads[heaviest], _LOAD, "ms", f"{kind}: slowest page, `/{heaviest}`", 1, least=False),
        Figure(_median(loads), _LOAD, "ms", f"{kind}: middle page", 1, least=False),
        Figure(max(requests.values()), _REQUESTS, "requests", f"{kind}: most requests of a view", 1, least=False),
        Figure(growth, _GROWTH, "MB", f"{kind}: memory of the web process over {_VIEWS} views", 1, least=False),
    ]


def _median(found: dict[str, float]) -> float:
    return statistics.median(found.values())


def _print(kind: str, *tables: dict[str, float]) -> None:
    for table in tables:
        slowest = sorted(table.items(), key=lambda each: -each[1])
        print(f"{kind}: " + " ".join(f"{path or '/'} {value:.0f}" for path, value in slowest), file=sys.stderr)


def _answers(shop: Shop, filled: Filled) -> dict[str, float]:
    """p95 of each route, in milliseconds. Routes that the store does not have are left out."""
    times: dict[str, list[float]] = {}
    connection = http.client.HTTPConnection("127.0.0.1", shop.port, timeout=SOON)
    for _ in range(_ROUNDS):
        for route in READ_ROUTES:
            if route.media_type == "text/event-stream":
                continue
            uuid = re.sub(r"{(uuid|id)}", filled.uuid, route.path).replace("{name}", "rare")
            began = time.perf_counter()
            connection.request("GET", f"/api/v1{uuid}", headers={"Authorization": f"Bearer {TOKEN}"})
            answer = connection.getresponse()
            answer.read()
            took = (time.perf_counter() - began) * 1000
            assert answer.status < 500, f"{answer.status} {route.path}"
            if answer.status == 200:
                times.setdefault(route.path, []).append(took)
    connection.close()
    return {path: p95(each) for path, each in times.items()}


def _paths(filled: Filled) -> list[str]:
    return [path.format(**filled._asdict()) for path in _PAGES]


def _loads(tab: Page, shop: Shop, filled: Filled) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds from the address to the data, medians; and the requests to the API of a view."""
    loads: dict[str, float] = {}
    requests: dict[str, float] = {}
    for page, path in zip(_PAGES, _paths(filled), strict=True):
        times: list[float] = []
        for _ in range(_LOADS):
            tab.goto("about:blank")
            began = time.perf_counter()
            tab.goto(f"{shop.address}/{path}", wait_until="commit")
            tab.wait_for_function(_IS_SHOWN, timeout=SOON * 1000)
            times.append((time.perf_counter() - began) * 1000)
        loads[page] = statistics.median(times)
        urls: list[str] = []
        tab.goto(f"{shop.address}/nothing")
        tab.wait_for_function(_IS_SHOWN)
        tab.wait_for_load_state("networkidle")
        tab.on("request", lambda request, urls=urls: urls.append(request.url))
        tab.evaluate(_OPEN, f"{shop.address}/{path}")
        requests[page] = sum("/api/v1/" in url and "/status" not in url for url in urls)
    return loads, requests


def _memory_growth(tab: Page, shop: Shop, filled: Filled, pid: int, views: int) -> float:
    """MB between the first views and the last ones."""
    paths = _paths(filled)
    first = 0.0
    for number in range(views):
        tab.evaluate(_OPEN, f"{shop.address}/{paths[number % len(paths)]}")
        if number == min(_WARM, views // 3):
            first = _rss(pid)
    return max(0.0, _rss(pid) - first)


def _rss(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def million_sqlite(scale: float) -> list[Figure]:
    return _million("SQLite", scale)


def million_redis(scale: float) -> list[Figure]:
    return _million("Redis", scale)


def million_postgres(scale: float) -> list[Figure]:
    return _million("Postgres", scale)
