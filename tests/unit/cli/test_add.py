"""``onthedot add``, and a table of wrong usages of all commands."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from onthedot.cli import main
from tests.support.waits import wait_until
from tests.unit.cli.conftest import Console, Shop


def test_add_needs_no_code(shop: Shop) -> None:
    uuid = shop.do("add", "-n", "shop", "greet", "name=ann", "times:=2", "--priority", "high", "--after", "60")
    info = shop.app.sync.get(uuid)
    assert (info.source, info.args, info.priority, info.state) == (
        "greet",
        {"name": "ann", "times": 2},
        10,
        "scheduled",
    )


@pytest.mark.parametrize(("text", "delay"), [("1h", 3600), ("90s", 90), ("1.5m", 90), ("60", 60), ("0.5", 0.5)])
def test_add_takes_durations(console: Console, text: str, delay: float) -> None:
    uuid = console.do("add", "-n", "shop", "greet", "name=ann", "--after", text, "--timeout", text).strip()
    info = console.app.sync.get(uuid)
    assert (info.schedule_at - info.added_at).total_seconds() == pytest.approx(delay, abs=0.01)


def test_add_to_a_store_without_an_app_needs_a_name(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    result = CliRunner().invoke(main, ["add", "greet", "--store", url])
    assert (result.exit_code, result.stdout) == (2, "")
    lack = f"there is no file {tmp_path}/new.db yet, so no app has anything there"
    assert result.stderr == f"onthedot: whose task? {lack}; say -A app.py, or -n NAME\n"
    assert list(tmp_path.iterdir()) == []
    CliRunner().invoke(main, ["schema", "install", "--store", url])
    result = CliRunner().invoke(main, ["add", "greet", "--store", url])
    assert result.stderr == f"onthedot: whose task? {url} has no app yet; say -A app.py, or -n NAME\n"
    for more in (["-n", "shop"], []):  # from now on the store has an app
        assert CliRunner().invoke(main, ["add", "greet", "--store", url, *more]).exit_code == 0


def test_add_waits_for_the_result(shop: Shop) -> None:
    shop.worker()
    uuid, result = shop.do("add", "greet", "name=ann", "--wait", "--timeout", "20").splitlines()
    assert (shop.state(uuid), result) == ("succeeded", "hello ann")
    assert shop.json("add", "greet", "name=ann", "times:=2", "--wait")["result"] == "hello ann hello ann"
    assert int(shop.do("add", "email.send", "to=ann", "--wait").splitlines()[-1]) > 0
    code, out, err = shop.run("add", "-A", "app", "fail", "order=3", "--wait")
    assert (code, err) == (1, f"onthedot: task {out.strip()} failed: ValueError: no order 3 for 'c3'\n")
    code, out, err = shop.run("add", "-A", "app:app", "nap", "name=a", "until=go", "--wait", "--timeout", "0.2")
    assert (code, shop.app.sync.get(out.strip()).source) == (124, "nap")
    assert "has not ended within 0.2 s" in err


@pytest.mark.parametrize("form", ["text", "json"])
def test_ctrl_c_while_add_waits_names_the_task_that_goes_on(shop: Shop, form: str) -> None:
    shop.worker()
    flags = ["--json"] if form == "json" else []
    command = ["add", "nap", "name=a", "until=go", "--wait", *flags, "--store", "sqlite:///shop.db"]
    running = shop.start(*command)
    if form == "text":
        running.until("\n")
        uuid = running.lines[0].strip()
    wait_until(lambda: shop.notes() == ["begin a"], 20)
    running.tell(signal.SIGINT)
    assert running.ended() == 130
    wait_until(lambda: "interrupted" in running.text)
    if form == "json":
        error = json.loads(running.text)["error"]
        uuid = error["uuid"]
        assert error["code"] == "interrupted"
    assert f"interrupted: task {uuid} is stored and goes on; onthedot task show {uuid[-10:]}" in running.text
    assert shop.state(uuid) == "running"
    shop.go()
    wait_until(lambda: shop.state(uuid) == "succeeded")


def test_ctrl_c_before_the_store_has_answered_names_the_task(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onthedot.api.functions.Enqueuer.delay", interrupt)
    result = CliRunner().invoke(main, ["add", "greet", "-n", "shop", "--store", shop.app.runtime.url])
    assert (result.exit_code, result.stdout) == (130, "")
    assert re.fullmatch(
        r"onthedot: interrupted: task \S{36} may be stored or not; onthedot task show .*\n", result.stderr
    )


def test_add_with_the_code_checks_and_converts_arguments(shop: Shop) -> None:
    code, uuid, err = shop.run("add", "-A", "app.py", "greet", "name=17", "times=2")
    assert (code, err) == (0, "")
    assert shop.app.sync.get(uuid.strip()).args == {"name": "17", "times": 2}
    for arguments, expected in (
        (["greet", "nmae=ann"], "did you mean 'name'?"),
        (["greet", "name=ann", "times=x"], "times"),
        (["greeet", "name=ann"], "app 'shop' has no task 'greeet'; did you mean 'greet'?"),
    ):
        code, out, err = shop.run("add", "-A", "app.py", *arguments)
        assert (code, out, expected in err, err.count("\n")) == (2, "", True, 1), err


def test_add_takes_a_unique_key_and_a_due_time(shop: Shop) -> None:
    uuid = shop.do("add", "-n", "shop", "greet", "name=ann", "--unique", "k", "--at", "2999-01-01T00:00:00+00:00")
    assert shop.app.sync.get(uuid).schedule_at.year == 2999
    code, out, err = shop.run("add", "greet", "name=ann", "--unique", "k", "--store", "sqlite:///shop.db")
    assert (code, out.strip(), "nothing was added" in err) == (0, uuid, True)
    result = json.loads(
        shop.run("add", "greet", "name=a", "--unique", "k", "--store", "sqlite:///shop.db", "--json")[1]
    )
    assert result == {"uuid": uuid, "added": False}


WRONG = [
    # arguments, exit code, part of the message
    (["nope"], 2, "No such command 'nope'; there are: add, audit, batch"),
    (["wroker", "app.py"], 2, "No such command 'wroker'; did you mean 'worker'?"),
    (["task"], 2, "task needs a command; there are: task cancel, task explain, task list"),
    (["task", "--nope"], 2, "task needs a command"),
    (["task", "lst"], 2, "No such command 'task lst'; did you mean 'task list'?"),
    (["task", "archive"], 2, "No such command 'task archive'"),
    (["outbox", "dlt", "reply"], 2, "No such command 'outbox dlt reply'; did you mean 'outbox dlt replay'?"),
    (["task", "show", "x", "--store", "foo"], 2, "onthedot: store 'foo' is not a store's URL; known are"),
    (["task", "list", "--store", "sqlite:///none.db"], 3, "onthedot: there is no file"),
    (["task", "list"], 3, "onthedot: there is no file"),
    (["failed"], 3, "onthedot: there is no file"),
    (["worker", "list"], 3, "onthedot: there is no file"),
    (["task", "cancel", "x"], 3, "onthedot: there is no file"),
    (["task", "list", "--store", "sqlite:///junk"], 3, "onthedot: "),
    (["task", "list", "--store", "sqlite:///no/such/folder/x.db"], 3, "onthedot: there is no file"),
    (["task", "list", "--store", "memory://"], 2, "memory:// lives inside one process"),
    (["task", "list", "--store", "redis://localhost:1"], 3, "onthedot: redis://localhost:1: "),
    (["task", "list", "--since", "soon"], 2, "neither a time ago"),
    (["task", "list", "--state", "lost"], 2, "'lost' is not one of"),
    (["task", "list", "-n", "a b"], 2, "is not a name"),
    (["task", "cancel"], 2, "say which: uuids, or filters such as --source and --state\n"),
    (["task", "cancel", "x", "--source", "y"], 2, "--source and --state, not both"),
    (["task", "retry", "--source", "x", "--rate", "fast"], 2, "onthedot: rate 'fast' cannot be read"),
    (["add"], 2, "Missing argument 'NAME'"),
    (["add", "greet", "ann"], 2, "'ann' is no argument; write name=text or name:=json"),
    (["add", "greet", "n:={"], 2, "is not JSON after :="),
    (["add", "gr eet"], 2, "is not a name"),
    (["add", "greet", "--priority", "11"], 2, "priority must be 1 to 10"),
    (["add", "greet", "--at", "noon"], 2, "Invalid value for '--at': 'noon' is not a moment"),
    (["add", "greet", "--at", "2999-01-01", "--after", "1"], 2, "at and after: give one of them"),
    (["add", "greet", "--after", "soon"], 2, "'soon' is no time; write 90s, 10m, 24h or 7d"),
    (["add", "greet", "--after", "-1"], 2, "'-1' is no time; write 90s, 10m, 24h or 7d"),
    (["add", "greet", "--store", "memory://"], 2, "memory:// lives inside one process"),
    (["add", "greet", "-n", "shop", "--store", "sqlite:////proc/x.db"], 3, "onthedot: "),
    (["worker"], 2, "which app? Name app.py, or -A module:app; here is app.py"),
    (["worker", "-A", "nope:app"], 2, "onthedot: there is no module 'nope' in {folder}, nor installed; here is app.py"),
    (["worker", "nope.py"], 2, "onthedot: there is no file {folder}/nope.py; here is app.py"),
    (["worker", "app:nope"], 2, "onthedot: app has no 'nope'; there are app:app"),
    (["worker", "app:note"], 2, "onthedot: app has no App in 'note'; there are app:app"),
    (["worker", "empty.py"], 2, "onthedot: empty.py has no App; write `app = App(…)` in it"),
    (["worker", "two.py"], 2, "onthedot: which app? there are two.py:a, two.py:b"),
    (["worker", "broken.py"], 2, "onthedot: {folder}/broken.py:1: "),
    (["worker", "raises.py"], 2, "onthedot: raises.py cannot be imported: ZeroDivisionError: division by zero"),
    (["worker", "needs.py"], 2, "onthedot: needs.py cannot be imported: ModuleNotFoundError: No module named 'xyz'"),
    (["worker", "exits.py"], 2, "onthedot: exits.py cannot be imported: SystemExit: 7"),
    (["worker", "app.py", "-A", "other"], 2, "which app, app.py or -A other?"),
    (["worker", "app.py", "--processes", "0"], 2, "0 is not in the range x>=1"),
    (["worker", "app.py", "--health", "x"], 2, "is no address; write :8081"),
    (["worker", "app.py", "--only", "x.*"], 2, "onthedot: --only x.*: no such source; there are block, email.send"),
    (["worker", "app.py", "--wait-for-store", "0", "--store", "sqlite:////proc/x.db"], 3, "onthedot: "),
    (["worker", "app.py", "--store", "foo"], 2, "onthedot: store 'foo' is not a store's URL"),
    (["dev", "nope.py"], 2, "onthedot: there is no file {folder}/nope.py"),
    (["doctor"], 3, "✗"),
    (["doctor", "--store", "sqlite:///junk"], 3, "file is not a database"),
    (["schema", "check", "--store", "sqlite:///junk"], 3, "file is not a database"),
    (["schema", "install", "--store", "sqlite:////proc/x.db"], 3, "onthedot: /proc/x.db: "),
    (["schema", "print", "--store", "memory://"], 2, "memory:// has no schema"),
]


@pytest.mark.parametrize(("arguments", "code", "expected"), WRONG, ids=[" ".join(each[0]) for each in WRONG])
def test_wrong_usage_is_explained_in_one_line(shop: Shop, arguments: list[str], code: int, expected: str) -> None:
    for name, text in (
        ("empty", ""), ("broken", "def f(:"), ("raises", "1 / 0"), ("needs", "import xyz"), ("exits", "exit(7)"),
        ("two", "from onthedot import App\na, b = App('a'), App('b')"),
    ):  # fmt: skip
        (shop.folder / f"{name}.py").write_text(text)
    (shop.folder / "junk").write_text("this is no database, however long one looks at it" * 100)
    got, out, err = shop.run(*arguments)
    result = re.sub(r"; here is .*app\.py", "; here is app.py", err) + out
    assert expected.format(folder=shop.folder) in result
    assert got == code
    assert "onthedot/" not in err  # no frame of onthedot
    assert not list(shop.folder.glob("*.db"))
