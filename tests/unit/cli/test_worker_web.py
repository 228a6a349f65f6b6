"""``onthedot worker --web``: the page as one more child of the supervisor."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.support.http_client import request
from tests.support.services.ports import free_port
from tests.support.waits import wait_until
from tests.unit.cli.conftest import Running, Shop


def pages(shop: Shop) -> list[str]:
    return [command for command in shop.alive() if " web --listen " in command]


def pid_of_page(running: Running) -> int:
    return running.children()[-1]


def test_page_is_started_again_with_the_same_token_and_ends_with_the_worker(shop: Shop, tmp_path: Path) -> None:
    port = free_port()
    running = shop.worker("--web", f":{port}", env={"XDG_STATE_HOME": str(tmp_path)})
    shown = f"page http://127.0.0.1:{port}/ · the token is in {tmp_path}"
    running.until(shown)
    assert request(port, "GET", "/readyz").status == 200
    os.kill(pid_of_page(running), signal.SIGKILL)
    running.until("died, killed by SIGKILL; starting another in")
    running.until(shown, times=2)
    (file,) = (tmp_path / "onthedot").iterdir()
    assert file.read_text().strip() not in running.text, "others read the log"
    assert shop.result(shop.add("greet", name="ann")) == "hello ann"
    running.tell(signal.SIGTERM)
    assert running.ended() == 0
    assert shop.alive() == []


def test_killed_supervisor_leaves_no_page(shop: Shop) -> None:
    port = free_port()
    running = shop.worker("--web", f":{port}", env={"ONTHEDOT_WEB_TOKEN": "a-token-of-this-test-0123456789"})
    running.until(f"page http://127.0.0.1:{port}/\n")
    running.process.kill()
    wait_until(lambda: shop.alive() == [])


def test_page_waits_for_a_port_that_is_taken(shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = shop.worker("--web", f":{port}", env={"ONTHEDOT_WEB_TOKEN": "a-token-of-this-test-0123456789"})
        running.until(f"no page: 127.0.0.1:{port} is not free; trying again in")
    running.until(f"page http://127.0.0.1:{port}/\n")


def test_public_address_without_tls_is_refused_and_tasks_run(shop: Shop) -> None:
    running = shop.worker("--web", f"0.0.0.0:{free_port()}")
    running.until("is reached from other machines, and tokens would travel as plain text")
    running.until("no page: its settings are refused")
    assert shop.result(shop.add("greet", name="ann")) == "hello ann"
    assert pages(shop) == []


@pytest.mark.parametrize("address", [":0", ":x"])
def test_wrong_address_is_refused(shop: Shop, address: str) -> None:
    code, _, err = shop.run("worker", "app.py", "--web", address)
    assert code == 2
    assert "is no address" in err
