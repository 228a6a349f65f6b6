"""``onthedot doctor``: each real problem is found and has a remedy; a healthy store has none."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from onthedot import App
from onthedot.cli import main
from onthedot.clock.epoch import to_ms
from onthedot.clock.manual import ManualClock
from onthedot.engine.chores import outcome_for_chore
from onthedot.operations.workers import WorkerInfo
from onthedot.stores.contract import ClaimRequest, History, Lease, Limit, Schedule, SlotPool, Store
from onthedot.stores.rules.records import with_state
from tests.support.app_access import call_operations
from tests.support.waits import wait_until
from tests.unit.cli.conftest import ROOT, Console, Shop, as_nobody

LONG_AGO = datetime.now(UTC) - timedelta(hours=3)


def ill(console: Console, *arguments: str, code: int = 1) -> list[dict[str, Any]]:
    result = console.json("doctor", *arguments, code=code)
    assert result["ok"] is False
    bad = [each for each in result["findings"] if not each["ok"]]
    assert all(each["remedy"] for each in bad), bad
    text = console.do("doctor", *arguments, code=code)
    assert text.count("✗") == text.count("→ ") == len(bad)
    return bad


def only(console: Console, *arguments: str, code: int = 1) -> tuple[str, str, str]:
    """Return the only problem: what, text, remedy."""
    (bad,) = ill(console, *arguments, code=code)
    return bad["what"], bad["text"], bad["remedy"]


def on(console: Console, work: Callable[[Store], Awaitable[None]]) -> None:
    console.app.runtime.portal.run_sync(lambda client: work(client.store))  # type: ignore[arg-type]


def test_doctor_finds_nothing_in_a_healthy_store(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pending and scheduled tasks, a short pause, limits, a schedule and a live worker."""
    console.app.schedule("0 3 * * *", name="nightly")(lambda: None)
    console.work(*(console.add("greet", name=str(number)) for number in range(3)))
    console.add("nobody_yet")
    console.app.named("greet").options(after=3600).delay(name="later")
    console.app.sync.pause("mail", reason="deploy")
    console.add("mail", to="ann")
    with console.app.background():
        result = console.json("doctor")
    assert (result["ok"], [each for each in result["findings"] if not each["ok"]]) == (True, [])
    assert {each["what"] for each in result["findings"]} >= {
        "onthedot", "Python", "clock", "SQLite", "file system", "writable", "disk", "schema", "store", "reachable",
        "workers", "oldest ready", "paused", "failed",
    }  # fmt: skip


# -- what waits


def test_doctor_finds_a_due_task_without_a_worker(console: Console) -> None:
    console.app.named("greet").options(at=LONG_AGO).delay(name="ann")
    what, text, remedy = only(console)
    assert (what, text) == ("oldest ready", "due 3 h ago: 1 of greet, and no live worker knows it")
    assert "onthedot worker APP" in remedy


def test_doctor_suggests_the_source_that_workers_know(console: Console) -> None:
    console.app.named("gret").options(at=LONG_AGO).delay(name="ann")
    with console.app.background():
        _, text, remedy = only(console)
    assert "1 of gret, and no live worker knows it" in text
    assert "or is it 'greet', which workers know?" in remedy


def test_doctor_finds_a_source_whose_workers_are_busy(console: Console) -> None:
    console.app.named("greet").options(at=LONG_AGO).delay(name="ann")

    async def busy(store: Store) -> None:
        await store.heartbeat("w", b'{"host":"h","pid":1,"sources":["greet"],"concurrency":{"async":1}}', 10**9)

    on(console, busy)
    _, text, remedy = only(console)
    assert text == "due 3 h ago: 1 of greet, although 1 live workers know it"
    assert "more workers" in remedy


def test_doctor_finds_the_oldest_task_behind_newer_ones(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onthedot.operations.doctor.MAX_READY", 10)
    with console.app.override(clock=ManualClock(LONG_AGO)):
        console.add("greet", name="old")
    for number in range(20):
        console.add("greet", name=str(number))
    assert "due 3 h ago: 21 of greet" in only(console)[1]


@pytest.mark.parametrize("key", [None, "a b"])
def test_doctor_finds_a_long_pause(console: Console, key: str | None) -> None:
    async def pause(store: Store) -> None:
        name = "greet" if key is None else f"greet/{key}"
        since = to_ms(LONG_AGO)
        await store.put_limits([Limit(name, paused=True, reason="deploy", owner="operator", paused_since=since)])

    console.add("greet", name="ann")
    on(console, pause)
    what, text, remedy = only(console)
    assert what == "paused"
    assert text == ("greet, 3 h ago: deploy; 1 ready ones wait" if key is None else "greet for a b, 3 h ago: deploy")
    assert remedy == "onthedot source resume greet" + ("" if key is None else " --key 'a b'")


# -- lost and damaged data


def live_workers(app: App) -> list[WorkerInfo]:
    return call_operations(app, lambda operations: operations.live_workers())


def test_doctor_names_data_loss_that_workers_found(console: Console, caplog: pytest.LogCaptureFixture) -> None:
    """The file of the store is removed while two workers run on it."""
    console.app.shutdown()
    first, second = (App("shop", store=console.url, poll_interval=0.2, stop_timeout=0) for _ in range(2))
    with first.background(), second.background():
        assert console.json("doctor")["ok"]
        console.app.shutdown()
        file = Path(console.url.removeprefix("sqlite:///"))
        for path in (file, file.with_name("shop.db-wal"), file.with_name("shop.db-shm")):
            path.unlink(missing_ok=True)
        wait_until(lambda: caplog.text.count("has lost its data") == 2)
        wait_until(lambda: sum(worker.data_lost is not None for worker in live_workers(console.app)) == 2)
        what, text, remedy = only(console)
    assert what == "data loss"
    assert re.fullmatch(r"2 workers found (now|\d+ s ago) that the store had lost data", text)
    assert "compare with your own records" in remedy


def test_doctor_shows_records_that_could_not_be_read(console: Console) -> None:
    async def end(store: Store) -> None:
        await store.heartbeat("w", b"", 10**9)
        turn = await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {"greet": 1})]))
        assert turn.claim is not None
        record = with_state(turn.claim.tasks[0], "ready", History(reason="undecodable"))
        lease = Lease(record.uuid, turn.claim.fence, "w")
        await store.turn("w", [outcome_for_chore(record, lease, None)], None)
        await store.close_session("w")

    uuid = console.add("greet", name="ann")
    on(console, end)
    what, text, remedy = next((each["what"], each["text"], each["remedy"]) for each in ill(console))
    assert (what, text) == ("undecodable", "1 record of greet could not be read, and ended as failed")
    assert f"onthedot task show {uuid}" in remedy


# -- what runs, and how it ended


def test_doctor_finds_tasks_of_a_killed_worker(shop: Shop) -> None:
    worker = shop.worker()
    shop.nap()
    wait_until(lambda: shop.notes() == ["begin a"])
    shop.app.shutdown()  # else this process would reap the session
    os.kill(worker.process.pid, signal.SIGSTOP)  # stop the supervisor, so that it starts no other process
    for pid in worker.children():
        os.kill(pid, signal.SIGKILL)
    worker.process.kill()
    worker.ended()
    result = shop.json("doctor", code=1)
    (bad,) = [each for each in result["findings"] if not each["ok"]]
    assert (bad["what"], bad["text"]) == ("running", "1 are leased to dead workers")
    assert "a worker requeues them when it starts" in bad["remedy"]
    shop.go()
    shop.worker()
    wait_until(lambda: "end a" in shop.notes())
    assert shop.json("doctor")["ok"]


def test_doctor_finds_more_running_tasks_than_slots(console: Console) -> None:
    for number in range(3):
        console.add("greet", name=str(number))

    async def hold(store: Store) -> None:
        await store.heartbeat("w", b'{"host":"h","pid":1,"sources":["greet"],"concurrency":{"async":1}}', 10**9)
        await store.turn("w", [], ClaimRequest(1, [SlotPool(3, {"greet": 3})]))

    on(console, hold)
    assert only(console)[:2] == ("running", "3, and all workers together have 1 slots")


def test_doctor_finds_many_failures(console: Console) -> None:
    console.work(console.add("fail", order=1), *(console.add("greet", name=str(number)) for number in range(20)))
    what, text, remedy = only(console)
    assert (what, text) == ("failed", "1 of 21 runs within a week (4.8%), most of them ValueError in fail")
    assert "onthedot task retry --group" in remedy


# -- time


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule("nightly", b"{}", "x", to_ms(LONG_AGO), runs=7), "nightly was due 3 h ago, and no worker fires it"),
        (Schedule("nightly", b"{}", "x", None), "nightly has never fired, and never will"),
    ],
)
def test_doctor_finds_an_overdue_schedule(console: Console, schedule: Schedule, expected: str) -> None:
    async def put(store: Store) -> None:
        await store.put_schedules([schedule, Schedule("done", b"{}", "x", to_ms(LONG_AGO), paused=True)])

    console.add("greet", name="ann")
    on(console, put)
    what, text, _ = only(console)
    assert (what, text[: len(expected)]) == ("schedule", expected)


def test_doctor_finds_an_orphaned_schedule(console: Console) -> None:
    before: App[None] = App("shop", store=console.url)
    before.schedule("0 3 * * *", name="nightly")(lambda: None)
    with before.background():
        assert console.json("doctor")["ok"]
    assert console.json("doctor")["ok"]  # without a worker: it fires when one starts
    with console.app.background():
        what, text, remedy = only(console)
    assert (what, text) == ("schedule", "nightly does not fire: no worker that runs declares it any more")
    assert "onthedot schedule delete nightly" in remedy


def test_doctor_finds_times_in_the_future(console: Console) -> None:
    with console.app.override(clock=ManualClock(datetime.now(UTC) + timedelta(hours=1))):
        console.add("greet", name="ann")
    what, text, remedy = only(console)
    assert what == "clock"
    assert re.fullmatch(r"the newest task of greet was added 3[56]\d\d s in the future", text)
    assert "chronyc" in remedy


# -- the file


def test_doctor_finds_a_newer_schema(console: Console, tmp_path: Path) -> None:
    console.add("greet", name="ann")
    console.app.shutdown()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("UPDATE onthedot_sequence SET version = 99")
        db.commit()
    bad = ill(console, code=3)
    assert [each["what"] for each in bad] == ["schema", "store"]
    assert "has schema version 99" in bad[0]["text"]
    assert "upgrade onthedot" in bad[0]["text"]


def test_doctor_finds_a_wal_that_grows_because_of_a_long_read(console: Console, tmp_path: Path) -> None:
    console.add("greet", name="ann")
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as db:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM onthedot_task").fetchone()
        console.app.named("greet").delay_many([{"name": "x" * 900_000} for _ in range(45)])
        what, text, remedy = only(console)
    assert what == "WAL"
    assert "shop.db-wal has " in text
    assert "lsof" in remedy


@pytest.mark.parametrize("what", ["file", "folder"])
def test_doctor_finds_missing_write_permission(what: str) -> None:
    """As another user, since root may write everything; in a folder that this user can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        app: App[None] = App("shop", store=f"sqlite:///{folder}/shop.db")
        app.named("greet").delay(name="ann")
        app.shutdown()
        folder.chmod(0o777 if what == "file" else 0o555)
        (folder / "shop.db").chmod(0o444 if what == "file" else 0o666)
        arguments = ["doctor", "--json", "--store", f"sqlite:///{folder}/shop.db"]
        CliRunner().invoke(main, arguments)  # imports all modules: the other user may not read this project
        with as_nobody():
            result = CliRunner().invoke(main, arguments)
        folder.chmod(0o700)
    assert result.exit_code in (1, 3), result.output
    bad = {each["what"]: each for each in json.loads(result.stdout)["findings"] if not each["ok"]}
    assert bad["writable"]["text"].startswith(str(folder / "shop.db" if what == "file" else folder) + ":")
    assert "chmod" in bad["writable"]["remedy"]


@pytest.mark.skipif(not ROOT, reason="only root may mount")
def test_doctor_finds_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        app: App[None] = App("shop", store=f"sqlite:///{small}/shop.db")
        app.named("greet").delay(name="ann")
        app.shutdown()
        result = CliRunner().invoke(main, ["doctor", "--json", "--store", f"sqlite:///{small}/shop.db"])
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
    (bad,) = [each for each in json.loads(result.stdout)["findings"] if not each["ok"]]
    assert (bad["what"], bad["text"]) == ("disk", "0.0 GiB free")
    assert f"free space where {small} is" in bad["remedy"]


def test_doctor_finds_a_missing_folder_or_file(console: Console, tmp_path: Path) -> None:
    console.url = f"sqlite:///{tmp_path}/none/shop.db"
    assert [each["what"] for each in ill(console, code=3)] == ["folder", "store"]
    console.url = f"sqlite:///{tmp_path}/none.db"
    what, text, remedy = only(console, code=3)
    assert what == "store"
    assert "there is no file" in text
    assert "--store" in remedy


# -- around it


def test_doctor_finds_an_old_sqlite(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    console.add("greet", name="ann")
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 1))
    assert only(console)[::2] == ("SQLite", "onthedot needs SQLite 3.35 or newer")


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("redis://localhost:1/0", "redis", "redis"), ("postgresql://localhost:1/x", "asyncpg", "postgres")],
)
def test_doctor_finds_a_missing_driver(
    console: Console, monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    console.url = url
    bad = {each["what"]: each for each in ill(console, code=3)}
    assert bad["driver"]["text"] == f"{module} is not installed"
    assert bad["driver"]["remedy"] == f"pip install 'onthedot[{extra}]'"


def test_doctor_finds_a_misspelt_url(console: Console) -> None:
    console.url = "sqlit:///shop.db"
    what, text, _ = only(console, code=3)
    assert (what, "did you mean sqlite:///shop.db?" in text) == ("store", True)


def test_doctor_finds_an_app_that_cannot_be_imported(console: Console, tmp_path: Path) -> None:
    console.add("greet", name="ann")
    (tmp_path / "broken_app.py").write_text("import nothing_of_the_kind")
    what, text, remedy = only(console, "-A", "broken_app.py")
    assert (what, "No module named 'nothing_of_the_kind'" in text, remedy) == (
        "app", True, "fix it, or name the right one by -A",
    )  # fmt: skip
