"""``onthedot web`` logs requests and changes, as JSON if that is wanted."""

from __future__ import annotations

import json
import signal
import urllib.request

import pytest

from tests.support.services.ports import free_port
from tests.unit.cli.conftest import Shop

pytestmark = pytest.mark.once
TOKEN = "operator-token-0123456789"


def test_requests_and_changes_are_json_lines(shop: Shop) -> None:
    shop.add("greet", after=3600, name="later")
    port = free_port()
    arguments = ("web", "-n", "shop", "--store", "sqlite:///shop.db", "--listen", f":{port}", "--access-log")
    running = shop.start(*arguments, "--log-format", "json", env={"ONTHEDOT_WEB_TOKEN": TOKEN})
    running.until("page http")
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/sources/greet/pause",
        b'{"reason":"vendor down"}',
        {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200
    running.until("/pause 200")
    running.tell(signal.SIGTERM)
    assert running.ended() == 0
    lines = [json.loads(line) for line in running.lines if line.startswith("{")]
    (change,) = [line for line in lines if line["message"].startswith("[operation]")]
    assert (change["logger"], change["user"], change["level"]) == ("onthedot.operations", "operator", "INFO")
    assert "vendor down" in change["message"]
    (access,) = [line for line in lines if line["logger"] == "onthedot.web.access"]
    assert access["message"] == "POST /api/v1/sources/greet/pause 200"
    assert len(lines) == 2
