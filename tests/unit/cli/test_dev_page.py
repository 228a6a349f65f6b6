"""The page of ``onthedot dev``, which stays while the worker is replaced."""

from __future__ import annotations

import asyncio
import http.client
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from onthedot.cli import dev
from onthedot.cli.dev_page import DevPage as ServedPage
from onthedot.errors import DeclarationError
from onthedot.supervisor.fleet_page import StoreSpec
from onthedot.web.server import listen
from tests.support.http_client import Answer, fetch
from tests.support.waits import SOON, wait_until
from tests.unit.cli.conftest import Running, Shop


class DevPage(NamedTuple):
    running: Running
    port: int
    token: str

    def get(self, path: str) -> Answer:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON)) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())

    @contextmanager
    def stream(self) -> Iterator[http.client.HTTPResponse]:
        """The changes, as an open tab reads them."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON)) as connection:
            connection.request("GET", "/api/v1/changes?watch=tasks", headers={"Authorization": f"Bearer {self.token}"})
            yield connection.getresponse()

    def end(self) -> None:
        self.running.tell(signal.SIGINT)
        assert self.running.ended() == 0
        assert "Traceback" not in self.running.text, self.running.text


def start(shop: Shop, tmp_path: Path, name: str = "app.py") -> DevPage:
    running = shop.start("dev", name, "--port", "0", env={"XDG_STATE_HOME": str(tmp_path / "state")})
    running.until("/?token=")
    address, _, token = running.lines[0].split()[1].partition("/?token=")
    return DevPage(running, int(address.rpartition(":")[2]), token)


def save(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def test_open_tab_survives_a_save_and_the_link_a_restart(shop: Shop, tmp_path: Path) -> None:
    page = start(shop, tmp_path)
    assert "worker ready" not in page.running.lines[0]
    assert page.get("/api/v1/status").status == 200, "it waits for the first worker"
    with page.stream() as stream:
        assert stream.status == 200
        save(shop.folder / "app.py", "hello {name}", "good day {name}")
        page.running.until("worker ready", times=2)
        assert page.get("/api/v1/status").status == 200
        uuid = shop.add("greet", name="ann")
        kinds: list[str] = []
        while f'"uuid":"{uuid}","source":"greet","state":"succeeded"' not in (line := stream.readline().decode()):
            assert line, "the stream has ended"
            kinds += [line.strip()] if line.startswith("event:") else []
        assert not {"event: bye", "event: store"} & set(kinds)
        assert kinds.count("event: reset") <= 1  # a stream may begin with one
        page.end()
    (file,) = (tmp_path / "state" / "onthedot").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().strip() == page.token
    again = start(shop, tmp_path)
    assert again.token == page.token
    again.end()


def test_worker_serves_the_page_of_a_memory_store(shop: Shop, tmp_path: Path) -> None:
    app = shop.folder / "app.py"
    save(app, "sqlite:///shop.db", "memory://")
    page = start(shop, tmp_path)

    def shown() -> str:
        try:
            return str(page.get("/api/v1/status").json().get("store", {}).get("kind"))
        except (ConnectionError, http.client.IncompleteRead):  # by the server that ends; a tab tries again
            return ""

    wait_until(lambda: shown() == "memory")
    save(app, "memory://", "sqlite:///shop.db")
    wait_until(lambda: shown() == "sqlite")
    save(app, "sqlite:///shop.db", "memory://")
    wait_until(lambda: shown() == "memory")
    page.end()


def test_page_waits_for_code_that_can_run(shop: Shop, tmp_path: Path) -> None:
    app = shop.folder / "app.py"
    save(app, "import asyncio,", "import asyncio, nothing_of_the_kind,")
    page = start(shop, tmp_path)
    page.running.until("waiting for the next save")
    answer = page.get("/")
    assert (answer.status, b'http-equiv="refresh"' in answer.body) == (503, True)
    assert page.get("/api/v1/status").json()["error"]["code"] == "not_open"
    save(app, "nothing_of_the_kind, ", "")
    page.running.until("worker ready")
    wait_until(lambda: page.get("/api/v1/status").status == 200)
    page.end()


async def test_save_while_the_page_connects_does_not_lose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONTHEDOT_WEB_TOKEN", "a-token-of-this-test-0123456789")
    stores = StoreSpec(f"sqlite:///{tmp_path / 'shop.db'}", "shop")
    with listen("127.0.0.1", 0) as listener:
        async with ServedPage(listener) as page:
            showing = asyncio.create_task(page.show(stores))
            await asyncio.sleep(0)  # it connects
            showing.cancel()
            await asyncio.wait([showing])
            assert showing.cancelled()
            await page.show(stores)
            assert (await fetch(listener.getsockname()[1], "GET", "/readyz")).status == 200


def test_no_page_is_served_if_it_is_not_wanted(shop: Shop) -> None:
    running = shop.start("dev", "app.py", "--no-page")
    running.until("worker ready")
    assert "page http" not in running.text


def test_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "onthedot.web.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert dev.page_listener(None) is None
    assert capsys.readouterr().out == "page: pip install 'onthedot[web]'\n"


def test_next_free_port_is_taken_unless_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = dev.page_listener(None, port)
        assert found is not None
        with found:
            assert port < found.getsockname()[1] < port + 20
        with pytest.raises(DeclarationError, match=f"cannot listen on 127.0.0.1:{port}: [^(]*$"):
            dev.page_listener(port)
        assert dev.page_listener(None, port, 1) is None
    assert capsys.readouterr().out == f"page: no port from {port} to {port} is free; name one by --port\n"
