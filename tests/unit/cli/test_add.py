"""``onthedot add``, and the table of what people type wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from onthedot.cli import main
from tests.unit.cli.conftest import Shop


def test_add_without_the_code(shop: Shop) -> None:
    uuid = shop.do("add", "-n", "shop", "greet", "name=ann", "times:=2", "--priority", "high", "--after", "60")
    info = shop.app.sync.get(uuid)
    assert (info.source, info.args, info.priority, info.state) == (
        "greet",
        {"name": "ann", "times": 2},
        10,
        "scheduled",
    )


def test_add_asks_whose_task_it_is_where_there_is_no_app(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    told = CliRunner().invoke(main, ["add", "greet", "--store", url])
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr == f"onthedot: whose task? {url} has no app yet; say -A app.py, or -n NAME\n"
    assert list(tmp_path.iterdir()) == []
    for more in (["-n", "shop"], []):  # from then on there is one
        assert CliRunner().invoke(main, ["add", "greet", "--store", url, *more]).exit_code == 0


def test_add_and_wait(shop: Shop) -> None:
    shop.worker()
    assert shop.do("add", "greet", "name=ann", "--wait", "--timeout", "20") == "hello ann"
    assert shop.json("add", "greet", "name=ann", "times:=2", "--wait")["result"] == "hello ann hello ann"
    assert int(shop.do("add", "email.send", "to=ann", "--wait")) > 0
    code, out, err = shop.run("add", "-A", "app", "fail", "order=3", "--wait")
    assert (code, out) == (1, "")
    assert re.fullmatch(r"onthedot: task \S+ failed: ValueError: no order 3 for 'c3'\n", err)
    code, out, err = shop.run("add", "-A", "app:app", "nap", "name=a", "until=go", "--wait", "--timeout", "0.2")
    assert (code, out) == (124, "")
    assert "has not ended within 0.2 s" in err


def test_with_the_code_arguments_are_checked_and_read(shop: Shop) -> None:
    code, uuid, err = shop.run("add", "-A", "app.py", "greet", "name=17", "times=2")
    assert (code, err) == (0, "")
    assert shop.app.sync.get(uuid.strip()).args == {"name": "17", "times": 2}
    for arguments, words in (
        (["greet", "nmae=ann"], "did you mean 'name'?"),
        (["greet", "name=ann", "times=x"], "times"),
        (["greeet", "name=ann"], "app 'shop' has no task 'greeet'; did you mean 'greet'?"),
    ):
        code, out, err = shop.run("add", "-A", "app.py", *arguments)
        assert (code, out, words in err, err.count("\n")) == (2, "", True, 1), err


def test_unique_and_at(shop: Shop) -> None:
    uuid = shop.do("add", "-n", "shop", "greet", "name=ann", "--unique", "k", "--at", "2999-01-01T00:00:00+00:00")
    assert shop.app.sync.get(uuid).schedule_at.year == 2999
    code, out, err = shop.run("add", "greet", "name=ann", "--unique", "k", "--store", "sqlite:///shop.db")
    assert (code, out.strip(), "nothing was added" in err) == (0, uuid, True)
    told = json.loads(shop.run("add", "greet", "name=a", "--unique", "k", "--store", "sqlite:///shop.db", "--json")[1])
    assert told == {"uuid": uuid, "added": False}


WRONG = [
    # arguments, exit code, what is said
    (["nope"], 2, "No such command 'nope'; there are: add, demo"),
    (["wroker", "app.py"], 2, "No such command 'wroker'; did you mean 'worker'?"),
    (["task"], 2, "task needs a command; there are: task cancel, task explain, task list"),
    (["task", "nope"], 2, "task needs a command"),
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
    (["add", "greet", "--at", "noon"], 2, "is not a moment"),
    (["add", "greet", "--at", "2999-01-01", "--after", "1"], 2, "at and after: give one of them"),
    (["add", "greet", "--store", "memory://"], 2, "memory:// lives inside one process"),
    (["add", "greet", "-n", "shop", "--store", "sqlite:////proc/x.db"], 3, "onthedot: "),
    (["worker"], 2, "which app? Name app.py, or -A module:app."),
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
    (["worker", "app.py", "--store", "sqlite:////proc/x.db"], 3, "onthedot: "),
    (["worker", "app.py", "--store", "foo"], 2, "onthedot: store 'foo' is not a store's URL"),
    (["dev", "nope.py"], 2, "onthedot: there is no file {folder}/nope.py"),
    (["doctor"], 3, "✗"),
    (["doctor", "--store", "sqlite:///junk"], 3, "file is not a database"),
    (["schema", "check", "--store", "sqlite:///junk"], 3, "file is not a database"),
    (["schema", "install", "--store", "sqlite:////proc/x.db"], 3, "onthedot: /proc/x.db: "),
    (["schema", "print", "--store", "memory://"], 2, "memory:// has no schema"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG, ids=[" ".join(each[0]) for each in WRONG])
def test_what_is_typed_wrong(shop: Shop, arguments: list[str], code: int, words: str) -> None:
    for name, text in (
        ("empty", ""), ("broken", "def f(:"), ("raises", "1 / 0"), ("needs", "import xyz"), ("exits", "exit(7)"),
        ("two", "from onthedot import App\na, b = App('a'), App('b')"),
    ):  # fmt: skip
        (shop.folder / f"{name}.py").write_text(text)
    (shop.folder / "junk").write_text("this is no database, however long one looks at it" * 100)
    got, out, err = shop.run(*arguments)
    told = re.sub(r"; here is .*app\.py", "; here is app.py", err) + out
    assert words.format(folder=shop.folder) in told
    assert got == code
    assert "onthedot/" not in err  # no frame of ours
    assert not list(shop.folder.glob("*.db"))
