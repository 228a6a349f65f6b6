"""Messages of the command line about errors, missing things and results."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from onthedot.cli import main
from onthedot.observability.log_format import ConsoleFormatter, JsonFormatter
from tests.unit.cli.conftest import Console, Shop


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("sqlit:///shop.db", "sqlite:///shop.db"),
        ("sqlite3:///shop.db", "sqlite:///shop.db"),
        ("postgress://localhost/shop", "postgres://localhost/shop"),
        ("reddis://localhost", "redis://localhost"),
        ("shop.db", "sqlite:///shop.db"),
        ("/var/lib/shop.db", "sqlite:////var/lib/shop.db"),
        ("sqlite:shop.db", "sqlite:///shop.db"),
        ("localhost:6379/0", "redis://localhost:6379/0"),
        ("me@db:5432/shop", "postgresql://…@db:5432/shop"),
    ],
)
def test_misspelt_url_gets_a_suggestion(url: str, meant: str) -> None:
    result = CliRunner().invoke(main, ["task", "list", "--store", url])
    assert result.exit_code == 2
    assert result.stderr.endswith(f"; did you mean {meant}?\n")


@pytest.mark.parametrize("url", ["foo", "mysql://localhost/x", "", "http://x"])
def test_invalid_url_lists_the_known_schemes(url: str) -> None:
    result = CliRunner().invoke(main, ["task", "list", "--store", url])
    assert result.exit_code == 2
    assert "is not a store's URL; known are memory://" in result.stderr
    assert "did you mean" not in result.stderr


def test_sqlite_url_with_two_slashes_gets_a_suggestion() -> None:
    result = CliRunner().invoke(main, ["task", "list", "--store", "sqlite://shop.db"])
    assert (result.exit_code, "sqlite:///shop.db is one in this folder" in result.stderr) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "code", "kind", "text"),
    [
        (["task", "list", "--state", "lost"], 2, "usage", "'lost' is not one of"),
        (["task", "list", "--nope"], 2, "usage", "No such option"),
        (["--nope", "task", "list"], 2, "usage", "No such option"),
        (["task"], 2, "usage", "task needs a command"),
        (["nope"], 2, "usage", "No such command 'nope'"),
        (["task", "list", "--store", "foo"], 2, "usage", "is not a store's URL"),
        (["task", "list", "--store", "sqlite:///none.db"], 3, "store", "there is no file"),
        (["task", "show", "9999"], 1, "failed", "no task 9999"),
        (["add", "greet", "--wait", "--timeout", "0.1"], 124, "timeout", "has not ended within 0.1 s"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_with_json_an_error_is_json_on_stderr(
    console: Console, arguments: list[str], code: int, kind: str, text: str
) -> None:
    console.add("greet", name="ann")
    where = [] if "--store" in arguments else ["--store", console.url]
    for command in (["--json", *arguments], [*arguments, "--json"]):
        result = CliRunner().invoke(main, [*command, *where])
        assert (result.exit_code, result.stdout) == (code, ""), result.output
        error = json.loads(result.stderr.splitlines()[-1])["error"]
        assert (error["code"], text in error["message"]) == (kind, True)
    if code != 2:
        result = CliRunner().invoke(main, [*arguments, *where], env={"ONTHEDOT_JSON": "1"})
        assert text in json.loads(result.stderr.splitlines()[-1])["error"]["message"]
    assert CliRunner().invoke(main, [*arguments, *where]).stderr.splitlines()[-1][:1] != "{"


def test_ctrl_c_during_the_import_prints_no_stack_trace() -> None:
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # the test runner may ignore the signal
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'onthedot.cli':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "import onthedot.__main__\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize(
    "arguments", [["task", "list"], ["failed"], ["doctor"], ["source", "pause", "greet"], ["schedule", "plan"], ["top"]]
)
def test_ctrl_c_is_exit_code_130(console: Console, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    console.add("greet", name="ann")

    async def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onthedot.stores.sqlite.SqliteStore.tally", interrupt)
    monkeypatch.setattr("onthedot.stores.sqlite.SqliteStore.find", lambda store, *_: interrupt(store))
    monkeypatch.setattr("onthedot.stores.sqlite.SqliteStore.schedules", interrupt)
    assert console.invoke(*arguments, code=130).stderr == "onthedot: interrupted\n"
    error = json.loads(console.invoke(*arguments, "--json", code=130).stderr)["error"]
    assert error == {"code": "interrupted", "message": "interrupted"}


def test_show_prints_the_result_and_earlier_errors(console: Console) -> None:
    tries: list[int] = []

    def flaky(order: int) -> dict[str, Any]:
        tries.append(order)
        if len(tries) < 3:
            raise KeyError(f"try {len(tries)}")
        return {"order": order, "took": timedelta(seconds=2), "text": "a\x1b[31m"}

    console.app.task(name="flaky", max_retries=2, backoff=0.01)(flaky)
    uuid = console.add("flaky", order=17)
    console.work(uuid)
    text = console.do("task", "show", uuid)
    for part in ('result:\n{"order":17,', "attempt 1: KeyError: 'try 1'", "attempt 2: KeyError: 'try 2'", "in flaky"):
        assert part in text
    assert "\x1b" not in text
    shown = console.json("task", "show", uuid)
    assert (shown["result"]["order"], shown["error"], [error["attempt"] for error in shown["errors"]]) == (
        17,
        None,
        [1, 2],
    )
    (listed,) = console.json("task", "list")["tasks"]
    assert [error["message"] for error in listed["errors"]] == ["'try 1'", "'try 2'"]


def test_show_prints_why_there_is_no_result(console: Console) -> None:
    console.app.task(name="odd")(lambda: object())
    console.app.task(name="brief", keep=timedelta(days=1))(lambda: None)
    odd = console.add("odd")
    brief = console.add("brief")
    console.work(odd, brief)
    assert "succeeded, but its result could not be stored" in console.do("task", "show", odd)
    statuses = [console.json("task", "show", uuid)["result_status"] for uuid in (odd, brief)]
    assert statuses == ["not_stored", "stored"]
    assert console.json("task", "show", brief)["result"] is None
    assert "result:\nnull" in console.do("task", "show", brief)
    waiting = console.add("greet", name="ann")
    assert console.json("task", "show", waiting)["result_status"] == "pending"


def test_long_result_is_cut_and_json_has_all_of_it(console: Console) -> None:
    console.app.task(name="long")(lambda: "x" * 5000)
    uuid = console.add("long")
    console.work(uuid)
    assert "… of 5,000 characters; --json has all of them" in console.do("task", "show", uuid)
    assert console.json("task", "show", uuid)["result"] == "x" * 5000


def test_add_warns_if_no_worker_knows_the_task(console: Console) -> None:
    result = console.invoke("add", "greet", "name=ann", "--wait", "--timeout", "0.1", "-n", "shop", code=124)
    assert result.stderr.startswith("waiting, but no live worker knows 'greet'; there is none at all")
    with console.app.background():
        result = console.invoke("add", "gret", "name=ann", "--wait", "--timeout", "0.1", code=124)
        assert result.stderr.startswith("waiting, but no live worker knows 'gret'; did you mean 'greet'?\n")
        result = console.invoke("add", "gret", "name=ann")
        assert result.stderr == "no live worker knows 'gret'; did you mean 'greet'?\n"
        result = console.invoke("add", "greet", "name=ann", "--wait", "--timeout", "15")
        assert (result.stdout[36:], result.stderr) == ("\nhello ann\n", "")


def test_log_line_of_a_failure_has_the_error_type(shop: Shop) -> None:
    shop.add("fail", order=7, kind="KeyError")
    running = shop.start("worker", "app.py", "--burst")
    assert running.ended() == 0
    (line,) = [line for line in running.lines if "[fail]" in line]
    assert line.endswith("from fail: \"no order 7 for 'c7'\" (KeyError)\n")


def test_json_log_line_has_the_error_type() -> None:
    record = logging.LogRecord(
        "onthedot.task", logging.ERROR, "", 0, "[fail] task %s from %s: %s", ("1", "a", "x"), None
    )
    assert json.loads(JsonFormatter().format(record)).keys() == {"time", "level", "logger", "message"}
    record.error_type = "KeyError"
    assert json.loads(JsonFormatter().format(record))["error_type"] == "KeyError"
    assert ConsoleFormatter(colours=False).format(record).endswith("[fail] task 1 from a: x (KeyError)")


def test_dev_reports_that_it_stops(shop: Shop) -> None:
    running = shop.start("dev", "app.py")
    running.until("worker ready")
    running.tell(signal.SIGINT)
    assert running.ended() == 0
    running.until("stopping · running tasks have 5 s (again: cancel them now)")
    running.until("\nstopped\n")


def test_other_store_in_the_folder_is_suggested(console: Console) -> None:
    console.add("greet", name="ann")
    result = CliRunner().invoke(main, ["task", "list"])
    assert result.exit_code == 3
    assert result.stderr.endswith("; here is shop.db: --store sqlite:///shop.db\n")


def test_help_of_the_worker_names_its_other_commands() -> None:
    result = CliRunner().invoke(main, ["worker", "--help"], prog_name="onthedot")
    assert result.exit_code == 0
    for command in ("onthedot worker list", "onthedot worker drain"):
        assert command in result.stdout
        words = command.split()[1:]
        assert CliRunner().invoke(main, [*words, "--help"]).exit_code == 0
