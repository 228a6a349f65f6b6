"""Which app a command without -n means, and what -A loads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from onthedot import App
from onthedot.cli import main
from tests.unit.cli.conftest import Shop, empty_server

Invoke = Callable[..., Result]


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shop.db"
        return
    with empty_server(request, request.param) as url:
        yield url


@pytest.fixture
def invoke(url: str, folder: Path) -> Invoke:
    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*arguments, "--store", url], prog_name="onthedot")
        assert result.exit_code == code, result.output
        return result

    return invoke


def new_app(url: str, name: str) -> App[None]:
    app = App(name, store=url)
    app.task(name="send")(lambda to="": None)
    return app


def test_app_with_a_live_worker_and_no_task_counts(url: str, invoke: Invoke) -> None:
    old = new_app(url, "old")
    old.named("send").delay()
    idle = new_app(url, "idle")
    with idle.background():
        for command in (["add", "send"], ["worker", "list"], ["top", "--once"]):
            assert "has several apps: idle, old; say which by -n" in invoke(*command, code=2).stderr
        assert len(json.loads(invoke("worker", "list", "-n", "idle", "--json").stdout)["workers"]) == 1
        assert len(json.loads(invoke("task", "list", "-n", "old", "--json").stdout)["tasks"]) == 1
    old.shutdown()
    idle.shutdown()


def test_app_with_schedules_alone_counts(url: str, invoke: Invoke) -> None:
    old = new_app(url, "old")
    old.named("send").delay()
    planned = new_app(url, "planned")
    planned.sync.schedules.put("hourly", planned.named("send").s(), "0 * * * *")
    assert "has several apps: old, planned; say which by -n" in invoke("add", "send", code=2).stderr
    for app in (old, planned):
        app.shutdown()


def test_app_that_has_nothing_left_does_not_count(url: str, invoke: Invoke) -> None:
    idle = new_app(url, "idle")
    with idle.background():
        pass
    planned = new_app(url, "planned")
    planned.sync.schedules.put("hourly", planned.named("send").s(), "0 * * * *")
    planned.sync.schedules.delete("hourly")
    old = new_app(url, "old")
    uuid = old.named("send").delay().uuid
    assert [task["uuid"] for task in json.loads(invoke("task", "list", "--json").stdout)["tasks"]] == [uuid]
    for app in (old, planned, idle):
        app.shutdown()


PACKAGE = {
    "proj/__init__.py": "",
    "proj/queue.py": 'from onthedot import App\napp = App("proj", store="sqlite:///proj.db", include=["proj.mail"])\n',
    "proj/mail.py": "from proj.queue import app\n\n@app.task\ndef mail(to: str, copies: int = 1) -> None: ...\n",
}


@pytest.fixture
def package(shop: Shop) -> Shop:
    (shop.folder / "proj").mkdir()
    for name, text in PACKAGE.items():
        (shop.folder / name).write_text(text)
    return shop


def test_add_with_an_app_knows_the_tasks_of_included_modules(package: Shop) -> None:
    code, _, err = package.run("add", "mail", "-A", "proj.queue:app", "to=x", "copies=2")
    assert (code, err) == (0, "")
    code, _, err = package.run("add", "mail", "-A", "proj.queue:app", "too=x")
    assert (code, "did you mean 'to'?" in err) == (2, True)


def test_doctor_with_an_app_counts_the_tasks_of_included_modules(package: Shop) -> None:
    package.run("add", "mail", "-A", "proj.queue:app", "to=x")
    _, out, _ = package.run("doctor", "-A", "proj.queue:app")
    assert "proj in proj.queue:app, 1 source\n" in out


def test_included_module_that_cannot_be_imported_is_named_in_one_line(package: Shop) -> None:
    (package.folder / "proj" / "mail.py").write_text("import nothing_of_the_kind\n")
    for command in (["add", "mail"], ["worker"], ["task", "list"], ["schedule", "plan"]):
        code, _, err = package.run(*command, "-A", "proj.queue:app")
        assert code == 2
        assert err.startswith(
            "onthedot: proj.mail cannot be imported: ModuleNotFoundError: No module named 'nothing_of"
        )
        assert "onthedot/" not in err
    _, out, _ = package.run("doctor", "-A", "proj.queue:app")
    assert "proj.mail cannot be imported" in out
