"""``onthedot bench``: it measures, and leaves nothing behind, however it ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from click.testing import CliRunner
from psycopg.sql import SQL, Identifier

from onthedot import App
from onthedot.cli import main
from onthedot.errors import StoreRefused
from onthedot.stores.schemes import remove_app
from tests.support.services import valkey
from tests.support.waits import SOON, wait_until
from tests.unit.cli.conftest import Running, Shop, empty_server
from tests.unit.cli.terminal import terminal

TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'onthedot'::regnamespace AND relkind = 'r' ORDER BY 1"


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store with a task of an app of a user."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/shop.db"
        add(url)
        yield url
        return
    with empty_server(request, request.param) as url:
        add(url)
        yield url


def add(url: str) -> None:
    app: App[None] = App("shop", store=url)
    app.named("greet").options(after=3600, unique="ann").delay(name="ann")
    app.shutdown()


def content(url: str) -> dict[str, Any]:
    """All that a store has, in a form that can be compared."""
    if url.startswith("redis"):
        with redis.Redis.from_url(url) as client:
            return {key: client.dump(key) for key in client.keys("*")}
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            tables = [SQL("onthedot.{}").format(Identifier(name)) for (name,) in connection.execute(TABLES)]
            read = [connection.execute(SQL("SELECT * FROM {}").format(table)).fetchall() for table in tables]
            return dict(zip(map(str, tables), read, strict=True))
    folder = Path(url.removeprefix("sqlite:///")).parent
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def bench(url: str, *flags: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["bench", "--store", url, *flags], prog_name="onthedot")
    assert result.exit_code == code, result.output
    return result.output


def test_bench_measures_and_removes_its_app(url: str) -> None:
    before = content(url)
    found = json.loads(bench(url, "--tasks", "200", "--json"))
    assert [(each["what"], each["tasks"]) for each in found["measures"]] == [
        ("add, one by one", 20), ("add, 100 at once", 180), ("drain", 201), ("pick-up by an idle worker", 200),
    ]  # fmt: skip
    one, many, drain, pick_up = found["measures"]
    assert min(each["per_second"] for each in (one, many, drain)) > 0
    assert (drain["p50"], pick_up["per_second"]) == (None, None)
    for each in (one, many, pick_up):
        assert 0 < each["p50"] <= each["p95"] <= each["p99"]
    assert content(url) == before


@contextmanager
def running(shop: Shop, url: str) -> Iterator[Running]:
    found = shop.start("bench", "--store", url, "--tasks", "5000")
    found.until("app bench-")
    yield found
    wait_until(lambda: shop.alive() == [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_removes_the_app(shop: Shop, url: str, number: signal.Signals) -> None:
    before = content(url)
    with running(shop, url) as found:
        if number == signal.SIGTERM:
            wait_until(lambda: bool(found.children()))  # its worker process; else it still adds
        found.tell(number)
        assert found.ended() == 130
    name = found.text.partition("app ")[2][:14]
    assert f"interrupted; app {name} is removed" in found.text
    assert "Traceback" not in found.text
    assert content(url) == before


def test_dead_worker_process_is_an_error_and_the_app_is_removed(shop: Shop, url: str) -> None:
    before = content(url)
    with running(shop, url) as found:
        wait_until(lambda: bool(found.children()))
        os.kill(found.children()[0], signal.SIGKILL)
        assert found.ended() == 1
    assert "the worker process has ended: killed by SIGKILL" in found.text
    assert content(url) == before


def test_table_fits_eighty_columns(tmp_path: Path) -> None:
    lines = bench(f"sqlite:///{tmp_path}/shop.db", "--tasks", "100").splitlines()
    assert [line.partition("  ")[0] for line in lines[2:]] == [
        "add, one by one", "add, 100 at once", "drain", "pick-up by an idle worker",
    ]  # fmt: skip
    assert lines[1].split() == ["TASKS", "PER", "SECOND", "P50", "P95", "P99"]
    assert max(map(len, lines[1:])) <= 80
    assert list(tmp_path.iterdir()) == []


def test_progress_is_shown_at_a_terminal(tmp_path: Path) -> None:
    with terminal(tmp_path, "bench", "--tasks", "1000", columns=80) as command:
        for what in ("add, one by one", "add, 100 at once", "drain", "pick-up"):
            command.until(f"\r\x1b[2K{what} ", SOON)  # each picture begins so
            command.until("━", SOON)
        assert command.ended(SOON) == 0


def test_user_who_may_not_delete_rows_is_refused_before_anything_is_added(request: pytest.FixtureRequest) -> None:
    with empty_server(request, "postgres") as url:
        add(url)
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("CREATE ROLE bencher LOGIN")
            try:
                rights = CliRunner().invoke(main, ["schema", "print", "--role", "bencher", "--store", url])
                owner.execute(rights.output)
                before = content(url)
                text = bench(url.replace("postgres@", "bencher@"), code=3)
                assert "name its owner or another user who may delete rows of app, change," in text
                assert content(url) == before
            finally:
                owner.execute("DROP OWNED BY bencher")
                owner.execute("DROP ROLE bencher")


def test_user_without_unlink_is_refused_before_anything_is_added() -> None:
    with valkey.server() as own:
        rights = CliRunner().invoke(main, ["schema", "print", "--role", "bencher", "--store", own.url]).output
        with redis.Redis.from_url(own.url) as client:
            client.execute_command(*rights.replace("PASSWORD", "secret").split())
        text = bench(own.url.replace("://", "://bencher:secret@"), code=3)
        assert "it also needs the commands scan and unlink" in text
        assert content(own.url) == {}


def test_memory_and_apps_of_a_file_are_refused(tmp_path: Path) -> None:
    assert "memory:// lives inside one process" in bench("memory://", code=2)
    assert "no file can be made beside" in bench(f"sqlite:///{tmp_path}/none/shop.db", code=3)
    with pytest.raises(StoreRefused, match="apps are removed with the file"):
        remove_app(f"sqlite:///{tmp_path}/shop.db", "shop")


def test_database_without_a_schema_is_left_without_one(request: pytest.FixtureRequest) -> None:
    with empty_server(request, "postgres") as url:
        assert "run `onthedot schema install`" in bench(url, code=3)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT to_regnamespace('onthedot')").fetchone() == (None,)
