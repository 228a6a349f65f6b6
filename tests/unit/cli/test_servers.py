"""The command line on real servers: it needs only --store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from onthedot import App, group
from onthedot.cli import main
from tests.support.services import valkey
from tests.support.waits import SOON, wait_until
from tests.unit.batches.name_tasks import NameTasks
from tests.unit.cli.conftest import empty_server


@pytest.fixture(params=["redis", "postgres"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with empty_server(request, request.param) as url:
        yield url


Do = Callable[..., str]


@pytest.fixture
def do(url: str, folder: Path) -> Do:
    def do(*text: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, [*text, "--store", url], prog_name="onthedot")
        assert result.exit_code == code, result.output
        return result.output

    return do


def shop(url: str, name: str = "shop") -> App[None]:
    app = App(name, store=url)

    @app.task
    def greet(name: str) -> str:
        if name == "nobody":
            raise ValueError("nobody is there")
        return f"hello {name}"

    return app


def test_only_app_of_a_server_needs_no_name(url: str, do: Do) -> None:
    app = shop(url)
    greet = app.named("greet")
    with app.background():
        assert greet.delay(name="ann").result(timeout=20) == "hello ann"
        assert isinstance(greet.delay(name="nobody").exception(timeout=20), Exception)
        assert json.loads(do("worker", "list", "--json"))["workers"]
    waits = greet.options(after=3600).delay(name="bob").uuid
    assert {each["state"] for each in json.loads(do("task", "list", "--json"))["tasks"]} == {
        "succeeded", "failed", "scheduled",
    }  # fmt: skip
    assert "due" in do("task", "explain", waits)
    assert "ValueError" in do("failed")
    assert do("source", "pause", "greet", "--reason", "lunch").startswith("paused greet")
    assert "lunch" in do("source", "list")
    assert do("source", "limit", "greet", "--at-once", "2") == "greet: 2 at once\n"
    assert "app shop" in do("doctor", code=1)  # a run has failed
    assert "cancelled 1 of 1" in do("task", "cancel", waits)
    assert "shop" in do("top", "--once")
    assert len(do("add", "greet", "name=cid").strip()) == 36
    app.shutdown()


def test_one_of_several_apps_must_be_named(url: str, do: Do) -> None:
    for name in ("shop", "till"):
        app = shop(url, name)
        app.named("greet").delay(name="ann")
        app.shutdown()
    assert "has several apps: shop, till; say which by -n" in do("task", "list", code=2)
    assert "greet" in do("task", "list", "-n", "till")


def test_server_without_apps_is_reported(url: str, do: Do) -> None:
    result = do("task", "list", code=3)
    assert "nobody has added anything" in result or "schema install" in result
    if not url.startswith("redis"):
        do("schema", "install")
    assert "nobody has added anything" in do("task", "list", code=3)
    result = do("doctor")
    assert "in which nobody has tasks yet" in result
    assert "ms from the store's" in result
    assert ("Valkey" in result) != ("PostgreSQL" in result)


def test_doctor_finds_a_server_that_is_nearly_full(folder: Path) -> None:
    with valkey.server() as own:
        used = next(line for line in own.text("INFO", "memory").splitlines() if line.startswith("used_memory:"))
        assert own.ask("CONFIG", "SET", "maxmemory", int(used.partition(":")[2]) * 10 // 9) == b"+OK"
        result = CliRunner().invoke(main, ["doctor", "--store", own.url], prog_name="onthedot")
    assert result.exit_code == 1
    assert "→ raise the server's maxmemory" in result.output


@pytest.mark.parametrize("gone", ["redis://127.0.0.1:1", "postgresql://nobody@127.0.0.1:1/x"])
def test_server_that_is_not_reached_is_exit_code_3(gone: str, folder: Path) -> None:
    result = CliRunner().invoke(main, ["task", "list", "--store", gone], prog_name="onthedot")
    assert result.exit_code == 3, result.output
    assert "127.0.0.1:1" in result.stderr
    assert "is it running" in result.stderr


def test_flows_batches_and_signals_are_read_with_the_url_alone(url: str, do: Do) -> None:
    """The command has no app: neither the functions nor the types of the tasks are known to it."""
    app = App("shop", store=url)
    names = NameTasks(app)

    @app.task
    async def price(item: int) -> int:
        if item == 2:
            raise ValueError("no price")
        return item * 10

    @app.task
    async def total(prices: list[int]) -> int:
        return sum(prices)

    with app.background():
        flow = (group(price.s(item) for item in range(4)) | total).delay()
        batch = app.sync.batch(names.names, count=5, type="character_name")
        assert len(batch.all(SOON).items) == 5
        wait_until(lambda: flow.progress().done == 5)
        wait_until(lambda: app.handle(batch.id).done())
        assert app.sync.signal("approved", {"by": "ann"}, id="evt-1")
    app.shutdown()
    shown = do("flow", "show", flow.uuid, "--tasks")
    assert "progress   5 of 5 ended, 2 of them without success\n" in shown
    assert "└─ price × 4: 1 failed, 3 succeeded" in shown
    assert "ValueError: no price" in shown
    (listed,) = json.loads(do("batch", "list", "--json"))["batches"]
    assert (listed["id"], listed["type"], listed["state"]) == (batch.id, "character_name", "succeeded")
    parts = json.loads(do("batch", "show", batch.id, "--json"))["batch"]["parts"]
    assert [(part["number"], part["items"], part["error"]) for part in parts] == [(1, 5, "")]
    assert "5 of 5" in do("batch", "show", batch.id)
    (kept,) = json.loads(do("signal", "list", "approved", "--json"))["signals"]
    assert (kept["id"], kept["payload"]) == ("evt-1", {"by": "ann"})
    assert "evt-1" in do("signal", "list", "approved")
