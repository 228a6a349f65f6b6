"""Secrets in the data of users: no command shows them, neither as text nor as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from onthedot import App, Reject, current_task, group
from onthedot.cli import main
from onthedot.client.client import StoreClient
from onthedot.events import Event
from onthedot.model.redaction import default_redaction
from onthedot.stores.capabilities import Outbox
from tests.support.waits import SOON, wait_until
from tests.unit.batches.name_tasks import NameTasks
from tests.unit.cli.conftest import Console

SECRET = "hunter2"
PLAIN = "the-bank-is-down"
TEXT = f"{PLAIN} password='{SECRET}' https://ann:{SECRET}@bank.example Bearer {SECRET}"
TOPIC = "shop.order.events"


class Shop:
    """A SQLite file with tasks, events and reasons that hold secrets. uuids: of tasks, by a name in this test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/shop.db"
        self.app = App("shop", store=self.url)
        self.uuids: dict[str, str] = {}
        self._declare(self.app)
        self._run(self.app)
        self._publish(self.app)
        self.app.shutdown()
        for command in (
            ("source", "pause", "greet", "--reason", TEXT),
            ("schedule", "pause", "mail", "--reason", TEXT),
            ("outbox", "pause", TOPIC, "--reason", TEXT),
            ("signal", "send", "other", f"password={SECRET}", f"note={PLAIN}"),
            ("batch", "cancel", self.uuids["batch"], "--reason", TEXT),
            ("task", "cancel", "--where", f"password={SECRET}", "--source", "none", "-y"),
        ):
            self.do(*command)

    def _declare(self, app: App[Any]) -> None:
        @app.task
        async def pay(order: int, password: str = "", note: str = "") -> None:
            raise ValueError(TEXT)

        @app.task
        async def greet(password: str, note: str) -> None: ...

        @app.task
        async def read_token(user: str) -> dict[str, str]:
            return {"token": SECRET, "note": PLAIN, "of": user}

        @app.task
        async def approve() -> object:
            return await current_task().wait_for("approved", timeout=3600)

        @app.task
        async def total(found: list[object]) -> None: ...

        @app.agent("packer", consumes="Shop.Order.Placed")
        async def pack(event: Event[dict[str, Any]]) -> None:
            raise Reject(TEXT)

        self.names = NameTasks(app).names
        self.flow = group(pay.s(number) for number in range(2)) | total

    def _run(self, app: App[Any]) -> None:
        pay = app.named("pay").options(metadata={"api_key": SECRET, "note": PLAIN})
        with app.background():
            self.uuids["pay"] = pay.delay(order=1, password=SECRET, note=PLAIN).uuid
            self.uuids["read"] = app.named("read_token").delay(user="ann").uuid
            self.uuids["flow"] = self.flow.delay().uuid
            self.uuids["approve"] = app.named("approve").delay().uuid
            app.sync.publish(Event("Shop.Order.Placed", {"id": 1}, aggregate_id="1", id="order-1"))
            for name in ("pay", "read", "flow"):
                wait_until(lambda uuid=self.uuids[name]: app.handle(uuid).done())
            wait_until(lambda: app.handle(self.uuids["approve"]).state() == "waiting")
            wait_until(lambda: "order-1" in self.do("outbox", "dlt", "list"))
        self.uuids["greet"] = app.named("greet").delay(password=SECRET, note=PLAIN).uuid
        app.named("greet").options(after=3600).delay(password="other", note=PLAIN)
        app.sync.schedules.put("mail", app.named("greet").s(SECRET, PLAIN), timedelta(hours=1))
        self.uuids["batch"] = app.sync.batch(self.names, count=5, type="item").id

    def _publish(self, app: App[Any]) -> None:
        """An event that the bus refuses."""

        async def refuse(client: StoreClient) -> None:
            store = client.store
            assert isinstance(store, Outbox)
            await store.relay("r", (), {event.number: TEXT}, None)

        app.sync.publish(Event("Shop.Order.Placed", {"id": 2}, aggregate_id="2", id="order-2"))
        (event,) = app.sync.operations.outbox.events(status="pending", topic=TOPIC)
        app.runtime.portal.run_sync(refuse)

    def do(self, *arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, [*arguments, "--store", self.url], prog_name="onthedot")
        assert result.exit_code == code, result.output
        return result.output


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("secrets"))


COMMANDS = {
    "task list": ("task", "list", "--source", "pay", "--limit", "1", "--sort", "ended"),
    "task list of pending tasks": ("task", "list", "--source", "greet"),
    "task show": ("task", "show", "{pay}"),
    "task show of a result": ("task", "show", "{read}"),
    "task explain": ("task", "explain", "{greet}"),
    "failed": ("failed",),
    "signal list": ("signal", "list", "other"),
    "flow show": ("flow", "show", "{flow}", "--tasks"),
    "batch list": ("batch", "list"),
    "batch show": ("batch", "show", "{batch}"),
    "schedule list": ("schedule", "list"),
    "source list": ("source", "list"),
    "outbox status": ("outbox", "status"),
    "outbox list": ("outbox", "list", "--status", "failed"),
    "outbox dlt list": ("outbox", "dlt", "list"),
    "audit": ("audit",),
    "top": ("top", "--frames", "1"),
}


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "JSON"])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_no_command_shows_a_secret(shop: Shop, command: tuple[str, ...], options: tuple[str, ...]) -> None:
    shown = shop.do(*[each.format(**shop.uuids) for each in command], *options)
    assert SECRET not in shown
    assert PLAIN in shown, "the command shows nothing of what has the secret"
    assert "…" in shown


def test_rest_of_a_redacted_task_is_shown(shop: Shop) -> None:
    task = json.loads(shop.do("task", "show", shop.uuids["pay"], "--json"))
    assert task["args"] == {"order": 1, "password": "…", "note": PLAIN}
    assert task["metadata"] == {"api_key": "…", "note": PLAIN}
    assert task["error"]["message"] == f"{PLAIN} password=… https://…@bank.example Bearer …"
    text = shop.do("task", "show", shop.uuids["pay"])
    assert f'{{"order":1,"password":"…","note":"{PLAIN}"}}' in text
    assert json.loads(shop.do("task", "show", shop.uuids["read"], "--json"))["result"] == {
        "token": "…", "note": PLAIN, "of": "ann",
    }  # fmt: skip


def test_audit_keeps_no_secret_of_a_filter(shop: Shop) -> None:
    (entry,) = json.loads(shop.do("audit", "--action", "cancel tasks", "--json"))["audit"]
    assert "where:{'password': '…'}" in entry["target"]
    stored = b"".join(path.read_bytes() for path in shop.folder.glob("shop.db*") if path.is_file())
    assert "where:{'password': '…'}".encode() in stored
    assert f"where:{{'password': '{SECRET}'}}".encode() not in stored


def test_waiting_caller_gets_the_whole_result(console: Console) -> None:
    @console.app.task
    async def read_token() -> dict[str, str]:
        return {"token": SECRET}

    @console.app.task
    async def pay(password: str) -> None:
        raise ValueError(f"password={password}")

    with console.app.background():
        shown = console.invoke("add", "read_token", "--wait", "--timeout", f"{SOON:g}s")
        assert json.loads(shown.stdout.splitlines()[1]) == {"token": SECRET}
        assert console.json("add", "read_token", "--wait")["result"] == {"token": SECRET}
        refused = console.invoke("add", "pay", f"password={SECRET}", "--wait", code=1)
    assert SECRET not in refused.output
    assert "password=…" in refused.stderr


@pytest.fixture
def fresh_rules() -> Iterator[None]:
    """$ONTHEDOT_REDACT is read again."""
    default_redaction.cache_clear()
    yield
    default_redaction.cache_clear()


@pytest.mark.usefixtures("fresh_rules")
def test_more_secrets_are_named_by_the_environment(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    uuid = console.add("send", name="ann", iban="DE02")
    assert "DE02" in console.do("task", "show", uuid)
    default_redaction.cache_clear()
    monkeypatch.setenv("ONTHEDOT_REDACT", "^iban$")
    assert console.json("task", "show", uuid)["args"] == {"name": "ann", "iban": "…"}
    assert "DE02" not in console.do("task", "list")
    default_redaction.cache_clear()
    monkeypatch.setenv("ONTHEDOT_REDACT", "(")
    refused = console.invoke("task", "list", code=1)
    assert refused.stderr.startswith("onthedot: ONTHEDOT_REDACT='(' is not a regular expression: ")


def test_names_of_sources_are_no_secrets(console: Console) -> None:
    @console.app.task(max_retries=3)
    async def charge_card() -> None: ...

    with console.app.background():
        (worker,) = console.json("worker", "list")["workers"]
        assert worker["max_retries"] == {"charge_card": 3}
        assert "charge_card" in console.do("worker", "list")
    uuid = console.add("charge_card")
    console.do("source", "pause", "charge_card")
    frame = json.loads(console.do("top", "--json", "--frames", "1"))
    assert frame["by_source"]["charge_card"]["done"] == 0
    assert console.json("source", "list")["sources"][0]["name"] == "charge_card"
    assert "charge_card is paused" in console.do("task", "explain", uuid)
    move = ["move", "--from", console.url, "--to", f"{console.url}-2", "--dry-run", "--json"]
    assert json.loads(CliRunner().invoke(main, move).stdout)["tasks"] == {"charge_card": 1}
