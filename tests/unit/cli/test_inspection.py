"""Commands that need only a store: list, show, cancel, retry. In this process, on a real file."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from onthedot import App
from onthedot.cli import main
from onthedot.model.error_fingerprint import message_template
from onthedot.stores.sqlite import path_of
from tests.unit.cli.conftest import Console, as_nobody, common_start


def test_task_list_prints_plain_columns_in_a_pipe(console: Console) -> None:
    first = console.add("greet", name="ann")
    second = console.add("greet", name="bob\x1b[31m\nx")
    head, *rows = console.do("task", "list").splitlines()
    assert head.split() == ["ID", "STATE", "SOURCE", "ADDED", "TOOK"]
    assert [row.split()[:3] for row in rows] == [[uuid[-10:], "ready", "greet"] for uuid in (second, first)]
    assert "name='ann'" in rows[1]
    assert "\x1b" not in console.do("task", "list") + console.do("task", "show", second)


def test_task_list_filters_and_pages(console: Console) -> None:
    uuids = [console.add("greet", name=str(number)) for number in range(5)]
    other = console.add("fail", order=1)
    console.work(other)
    uuids += [console.add("greet", name=str(number)) for number in range(5, 7)]
    listed = console.json("task", "list", "--source", "greet", "--limit", "3")
    assert [task["uuid"] for task in listed["tasks"]] == uuids[:-4:-1]
    rest = console.json("task", "list", "--source", "greet", "--cursor", listed["cursor"])
    assert [task["uuid"] for task in rest["tasks"]] == uuids[-4::-1]
    assert rest["cursor"] is None
    for filters in (["--state", "failed"], ["--error", "no order"], ["--error", "ValueError"], ["--source", "fail"]):
        assert [task["uuid"] for task in console.json("task", "list", *filters)["tasks"]] == [other]
    assert console.json("task", "list", "--error", "nope")["tasks"] == []
    assert len(console.json("task", "list", "--since", "1h")["tasks"]) == 8
    assert console.json("task", "list", "--since", "2999-01-01T00:00")["tasks"] == []
    assert console.json("task", "list", "--until", "1h")["tasks"] == []
    assert len(console.json("task", "list", "--since", "1h", "--until", "2999-01-01T00:00")["tasks"]) == 8


def test_a_page_of_errors_goes_on_where_it_ended(console: Console) -> None:
    uuids = [console.add("fail", order=number, kind=("KeyError", "ValueError")[number % 2]) for number in range(8)]
    console.work(*uuids)
    seen: list[str] = []
    cursor: list[str] = []
    while True:
        page = console.json("task", "list", "--error", "KeyError", "--limit", "3", *cursor)
        seen += [task["uuid"] for task in page["tasks"]]
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]
    assert seen == uuids[-2::-2]


def test_task_list_is_sorted(console: Console) -> None:
    def nap(seconds: float) -> None:
        time.sleep(seconds)

    console.app.task(name="nap")(nap)
    slow = console.add("nap", seconds=0.1)
    quick = console.add("nap", seconds=0)
    console.work(slow, quick)
    later = console.app.named("greet").options(after=7200).delay(name="later").uuid
    sooner = console.app.named("greet").options(after=3600).delay(name="sooner").uuid

    def order(*arguments: str) -> list[str]:
        return [task["uuid"] for task in console.json("task", "list", *arguments)["tasks"]]

    assert order("--sort", "took", "--limit", "2") == [slow, quick]
    assert order("--sort", "due", "--limit", "2") == [sooner, later]
    assert set(order("--sort", "ended", "--limit", "2")) == {slow, quick}
    assert len(order("--sort", "tries")) == 4
    assert "--sort has no pages" in console.do("task", "list", "--sort", "due", "--cursor", "after:3", code=2)


def test_task_list_of_an_empty_store_prints_a_hint(console: Console) -> None:
    with console.app.background():
        assert console.invoke("task", "list").stderr == "there are no tasks\n"
    console.work(console.add("greet", name="ann"))
    assert console.invoke("task", "list", "--state", "failed").stdout == ""
    assert "no such task" in console.invoke("task", "list", "--state", "failed").stderr
    assert "nothing has failed" in console.invoke("failed").stderr


def test_task_show_prints_all_facts_of_a_task(console: Console) -> None:
    uuid = console.add("fail", order=7)
    console.work(uuid)
    text = console.do("task", "show", uuid[:-3])
    for part in (uuid, "failed", '{"order":7}', "attempt 1: ValueError: no order 7 for 'c7'", "in fail"):
        assert part in text
    assert re.search(r"\nstarted \d{4}-\S+ \S+, took .+, worker \w+\n", text)
    info = console.json("task", "show", uuid)
    assert (info["state"], info["error"]["type"], info["args"]) == ("failed", "ValueError", {"order": 7})


def test_task_show_refuses_missing_and_ambiguous_uuids(console: Console) -> None:
    both = [console.add("greet", name="ann"), console.add("greet", name="bob")]
    assert "no task 9999" in console.do("task", "show", "9999", code=1)
    assert "several uuids" in console.do("task", "show", common_start(*both), code=1)


def test_tasks_are_cancelled_and_retried_by_uuid(console: Console) -> None:
    first = console.add("greet", name="ann")
    second = console.add("greet", name="bob")
    assert console.do("task", "cancel", first, second) == "cancelled 2 of 2\n"
    assert (console.state(first), console.state(second)) == ("cancelled", "cancelled")
    assert "none was cancelled" in console.do("task", "cancel", first, code=1)
    assert console.json("task", "retry", first) == {"found": 1, "retried": 1}
    assert (console.state(first), console.state(second)) == ("ready", "cancelled")
    assert "no task nope" in console.do("task", "cancel", first, "nope", code=1)
    assert console.state(first) == "ready"  # with one wrong uuid, nothing is done


def test_tasks_are_cancelled_and_retried_by_filter(console: Console) -> None:
    uuids = [console.add("greet", name=str(number)) for number in range(12)]
    other = console.add("fail", order=1)
    assert console.do("task", "cancel", "--source", "greet", "--dry-run") == "12 would be cancelled\n"
    assert console.state(uuids[0]) == "ready"
    began = datetime.now(UTC)
    assert console.do("task", "cancel", "--source", "greet", "--rate", "50/s") == "cancelled 12 of 12\n"
    assert datetime.now(UTC) - began >= timedelta(seconds=0.14)
    assert {console.state(uuid) for uuid in uuids} == {"cancelled"}
    found = console.do("task", "retry", "--source", "greet")  # failed tasks by default
    assert found == "no task matches, so none was retried\n"
    assert console.do("task", "retry", "--source", "greet", "--state", "cancelled") == "retried 12 of 12\n"
    assert console.state(other) == "ready"


def test_failed_is_grouped_and_a_group_is_retried(console: Console) -> None:
    uuids = [console.add("fail", order=number) for number in range(3)]
    other = console.add("fail", order=9, kind="KeyError")
    console.work(*uuids, other)
    first, second = console.json("failed")["groups"]
    assert (first["count"], first["type"], first["message"]) == (3, "ValueError", "no order … for …")
    assert (second["count"], second["type"], second["example"]) == (1, "KeyError", other)
    assert first["example"] in uuids
    text = console.do("failed")
    assert f"onthedot task retry --group {first['group']}" in text
    assert "no order … for …" in text
    assert [task["uuid"] for task in console.json("task", "list", "--group", second["group"])["tasks"]] == [other]
    assert console.do("task", "retry", "--group", first["group"]) == "retried 3 of 3\n"
    assert console.state(other) == "failed"
    assert console.json("failed", "--since", "1h")["groups"][0]["example"] == other
    assert console.json("failed", "--since", "2999-01-01T00:00:00+00:00")["groups"] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no order 17 for 'ann'", "no order 4 for 'bob'"),
        ('"a" is gone', '"b c" is gone'),
        ("0x7f12ab at 12.5 s", "0x00 at 3 s"),
        ("user 0199c1e2-8a3b-7abc-8def-001122334455", "user 0299c1e2-8a3b-7abc-8def-001122334466"),
        ("deadbeef01 lost", "c0ffee1234 lost"),
    ],
)
def test_errors_that_differ_in_values_are_one_group(one: str, other: str) -> None:
    assert message_template(one) == message_template(other) != one


def test_words_of_an_error_are_kept_in_its_group() -> None:
    assert message_template("it isn't a facade, don't ask") == "it isn't a facade, don't ask"


def test_doctor_prints_its_checks(console: Console) -> None:
    console.work(console.add("greet", name="ann"))
    text = console.do("doctor")
    assert text.count("✓") >= 10
    assert "✗" not in text
    found = {each["what"]: each for each in console.json("doctor")["findings"]}
    assert found["schema"]["text"].endswith("as it should be")
    assert "1 succeeded" in found["reachable"]["text"]
    if sqlite3.sqlite_version_info < (3, 44, 6):
        assert "has the WAL-reset bug; onthedot checkpoints under a lock" in found["SQLite"]["text"]


def test_doctor_finds_tasks_that_no_worker_knows(console: Console) -> None:
    console.app.named("greet").options(at=datetime.now(UTC) - timedelta(hours=1)).delay(name="ann")
    result = console.json("doctor", code=1)
    assert not result["ok"]
    (bad,) = [each for each in result["findings"] if not each["ok"]]
    assert (bad["what"], bad["text"][:11]) == ("oldest ready", "due 1 h ago")


def test_schema_is_printed_installed_and_checked(console: Console, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    assert "CREATE TABLE" in CliRunner().invoke(main, ["schema", "print"]).output
    missing = CliRunner().invoke(main, ["schema", "check", "--store", url])
    assert (missing.exit_code, list(tmp_path.glob("new*"))) == (3, [])
    for _ in range(2):
        assert "as it should be" in CliRunner().invoke(main, ["schema", "install", "--store", url]).output
    assert CliRunner().invoke(main, ["--store", url, "schema", "check", "--json"]).exit_code == 0
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE mine (x)").connection.close()
    result = CliRunner().invoke(main, ["schema", "check", "--store", f"sqlite:///{tmp_path}/other.db"])
    assert (result.exit_code, "onthedot schema install" in result.output) == (1, True)


def test_app_of_a_store_is_found_or_named(console: Console) -> None:
    console.add("greet", name="ann")
    assert len(console.json("task", "list")["tasks"]) == 1  # the only app of the store
    assert "has nothing of an app 'nobody'; it has: shop" in console.do("task", "list", "-n", "nobody", code=3)
    assert len(console.json("task", "list")["tasks"]) == 1
    app = App("bakery", store=console.url)
    app.named("bake").delay()
    app.shutdown()
    assert "has several apps: bakery, shop; say which by -n" in console.do("task", "list", code=2)
    assert [task["source"] for task in console.json("-n", "bakery", "task", "list")["tasks"]] == ["bake"]


def test_store_may_be_given_before_or_after_the_command_or_in_the_environment(console: Console) -> None:
    uuid = console.add("greet", name="ann")
    for arguments, env in (
        (["--store", console.url, "task", "list"], {}),
        (["task", "list", "--store", console.url], {}),
        (["task", "list"], {"ONTHEDOT_STORE": console.url}),
        (["--store", "sqlite:///nope.db", "task", "list", "--store", console.url], {"ONTHEDOT_STORE": "nope"}),
        (["task", "list"], {"ONTHEDOT_STORE": console.url, "ONTHEDOT_TASK_LIST_LIMIT": "1", "ONTHEDOT_JSON": "1"}),
    ):
        result = CliRunner().invoke(main, arguments, env=env)
        assert (result.exit_code, uuid[-10:] in result.output) == (0, True), result.output


def test_pipe_closed_by_head_prints_no_error(console: Console) -> None:
    for number in range(3):
        console.add("greet", name=str(number) * 50_000)
    command = [sys.executable, "-m", "onthedot", "task", "list", "--json", "--store", console.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == ""


def test_terminal_gets_colours(console: Console) -> None:
    pytest.importorskip("rich")
    pty = pytest.importorskip("pty")
    uuid = console.add("fail", order=7)
    console.work(uuid)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "onthedot", "task", "list", "--store", console.url]
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "150"}
    with subprocess.Popen(command, stdout=theirs, env=env) as process:
        os.close(theirs)
        text = ""
        while True:
            try:
                data = os.read(ours, 65_536)
            except OSError:
                break
            if not data:
                break
            text += data.decode()
        process.wait(20)
    os.close(ours)
    assert re.search(r"\x1b\[31mfailed", text)
    assert uuid[-10:] in text


def test_reading_a_foreign_database_does_not_change_it(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as db:
        db.execute("CREATE TABLE orders (x)")
        db.commit()
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at " * 20)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for file in before:
        for text in (
            ["task", "list"],
            ["failed"],
            ["worker", "list"],
            ["doctor"],
            ["task", "show", "0"],
            ["task", "explain", "0"],
        ):
            result = CliRunner().invoke(main, [*text, "--store", f"sqlite:///{file}"])
            assert result.exit_code == 3, (text, result.output)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("what", ["file", "folder"])
def test_looking_at_a_store_needs_no_right_to_write(what: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/shop.db"
        app: App[None] = App("shop", store=url)
        app.named("greet").delay(name="ann")
        app.shutdown()
        folder.chmod(0o555)
        (folder / "shop.db").chmod(0o444 if what == "file" else 0o666)
        looks = [["task", "list"], ["source", "list"], ["worker", "list"], ["failed"], ["add", "greet", "name=bob"]]
        for arguments in looks:  # imports all modules: the other user may not read this project
            CliRunner().invoke(main, [*arguments, "--store", f"sqlite:///{folder}/none.db", "-n", "shop"])
        with as_nobody():
            results = [CliRunner().invoke(main, [*arguments, "--store", url]) for arguments in looks]
        folder.chmod(0o700)
    *read, added = results
    assert [result.exit_code for result in read] == [0, 0, 0, 0], [result.output for result in read]
    assert "name='ann'" in read[0].stdout
    assert (added.exit_code, "may" in added.stderr, "no app" in added.stderr) == (3, True, False)


def test_reading_does_not_wait_for_writers(console: Console) -> None:
    console.add("greet", name="ann")
    with closing(sqlite3.connect(path_of(console.url), isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        assert len(console.json("task", "list")["tasks"]) == 1


def test_invalid_cursor_is_refused(console: Console) -> None:
    console.add("greet", name="ann")
    assert "'zzz' is not one that an earlier page ended with" in console.do("task", "list", "--cursor", "zzz", code=2)
    assert console.json("task", "list", "--state", "ready", "--cursor", "parked:")["tasks"] == []
