"""A shop with workers and its page, and Chromium: real processes, for all browser tests of this folder."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.checkout import ROOT
from tests.page.event_fills import XSS, events, refused_events
from tests.support.services import debian
from tests.support.services.ports import free_port
from tests.support.services.programs import give_up
from tests.support.waits import SOON, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.page.looks import Site

TOKEN = "a-token-that-only-these-tests-know-0123456789"
VIEWER_TOKEN = "a-token-of-a-viewer-0123456789-0123456789-01"
SHOP = ROOT / "tests" / "page" / "shop.py"
_ONTHEDOT = [sys.executable, "-m", "onthedot"]


class Shop:
    """The processes of one store: a worker, and the page on a port that stays the same."""

    def __init__(self, folder: Path, program: Path = SHOP, name: str = "shop", store: str = "") -> None:
        """program, name: of the app. store: its URL; "": SQLite in the folder."""
        self.attacker = ""  # a task with markup in every text
        self._folder = folder
        self.store = store or f"sqlite:///{folder}/shop.db"
        self.environment = {
            **os.environ,
            "ONTHEDOT_STORE": self.store,
            "ONTHEDOT_WEB_TOKEN": TOKEN,
            "ONTHEDOT_WEB_VIEWER_TOKEN": VIEWER_TOKEN,
        }
        self.port = free_port()
        self.program = program
        self.name = name

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def worker(self, *options: str, program: Path | None = None) -> Iterator[int]:
        """Yields the pid of its supervisor. program: with an app of the same name, instead of that of the shop."""
        path = str(program or self.program)
        with self._process("worker", "--stop-timeout", "0", *options, path, until="ready") as pid:
            yield pid

    @contextmanager
    def page(self) -> Iterator[int]:
        """Yields the pid."""
        with self._process("-n", self.name, "web", "--listen", f":{self.port}", until="page http") as pid:
            yield pid

    @contextmanager
    def both(self) -> Iterator[None]:
        """Worker and page. A memory store is in one process with both."""
        if self.store.startswith("memory:"):
            with self._process("dev", str(self.program), "--port", str(self.port), until="worker ready"):
                yield
        else:
            with self.worker(), self.page():
                yield

    @contextmanager
    def _process(self, *arguments: str, until: str) -> Iterator[int]:
        """Yields the pid. until: a text of the line after which it serves."""
        log = self._folder / f"{arguments[-1].replace('/', '_')}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [*_ONTHEDOT, *arguments], cwd=ROOT, env=self.environment, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            wait_until(lambda: until in log.read_text() or process.poll() is not None, timeout=60)
            assert until in log.read_text(), log.read_text()
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(SOON)

    def command(self, *arguments: str) -> Any:
        """The answer of a command, which is asked for JSON."""
        done = subprocess.run(
            [*_ONTHEDOT, *arguments, "--json"],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def run(self, code: str) -> str:
        """Runs `async def main()` in a process of its own: the browser's event loop is in this one."""
        program = f"import asyncio\nfrom tests.page import {self.program.stem}\n{code}\nasyncio.run(main())"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


FILL = f"""
from contextlib import suppress
from onthedot import TaskFailed
async def main():
    async with shop.app:
        orders = []
        for order in range(6):
            await shop.email.enqueue(f"user{{order}}@example.com", order)
            orders.append(await shop.deliver.enqueue(order, ["acme", "globex"][order % 2]))
        bad = await shop.deliver.options(label={XSS!r}, tags=[{XSS!r}]).enqueue(-1, {XSS!r})
        await shop.email.options(after=3600).enqueue("later@example.com", 7)
        await shop.resize.enqueue("large.png", 600.0)
        for handle in (*orders, bad):  # tests count the failed ones
            with suppress(TaskFailed):
                await handle.result(timeout={SOON})
        print(bad.uuid)
"""


@contextmanager
def started_chromium() -> Iterator[Browser]:
    """Inside, this thread has the event loop of playwright: `asyncio.run` does not work."""
    program = debian.program("chromium-headless-shell")
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program.path, args=flags, env=program.environment)
        yield browser
        browser.close()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if find_spec("playwright") is None:
        give_up("no playwright: it comes with the dependency group `page`")
    if not (ROOT / "src" / "onthedot" / "web" / "static" / "manifest.json").exists():
        give_up("the page is not built: ./dev page")
    debian.wanted("chromium-headless-shell")
    with started_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    found = Shop(tmp_path_factory.mktemp("shop"))
    found.run(refused_events(f"MessageSizeTooLarge {XSS}"))
    with found.worker():
        found.attacker = found.run(FILL)
        found.run(events())
        with found.page():
            yield found


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """With flows, batches and tasks that wait."""
    found = Shop(tmp_path_factory.mktemp("studio"), Path(__file__).with_name("flow_shop.py"), "studio")
    with found.worker(), found.page():
        yield found


class Watched:
    """A tab, and all that should not happen in it."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.troubles: list[str] = []
        page.on("console", lambda message: self._on_console(message.type, message.text, str(message.location)))
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._on_request(request.url, origin))

    def _on_console(self, kind: str, text: str, location: str) -> None:
        if kind in {"error", "warning"} and "/api/v1/changes" not in location:
            self.troubles.append(f"{kind}: {text} {location}")

    def _on_request(self, url: str, origin: str) -> None:
        if not url.startswith((origin, "data:")):
            self.troubles.append(f"request outside the origin: {url}")


@contextmanager
def watched_tab(chromium: Browser, shop: Site, token: str = TOKEN) -> Iterator[Watched]:
    """A tab that is signed in."""
    context = chromium.new_context(
        viewport={"width": 1440, "height": 900}, timezone_id="Europe/Berlin", reduced_motion="reduce"
    )
    context.set_default_timeout(SOON * 1000)
    watched = Watched(context.new_page(), shop.address)
    try:
        watched.page.goto(f"{shop.address}/?token={token}")
        yield watched
    finally:
        context.close()
    assert watched.troubles == []


@pytest.fixture
def tab(chromium: Browser, shop: Shop) -> Iterator[Watched]:
    with watched_tab(chromium, shop) as watched:
        yield watched
