"""``onthedot schedule`` on a real file, without the code of the schedules."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result

from onthedot import App, CronSchedule, IntervalSchedule
from onthedot.cli import main
from tests.support.waits import wait_until

APP = """
from datetime import timedelta
from onthedot import App
app = App("shop", store="sqlite:///shop.db")

class Daily:
    def next_after(self, moment):
        return moment + timedelta(days=1)

@app.schedule(Daily())
async def own() -> None: ...
"""


class Console:
    """A SQLite file with schedules, and the command line in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/shop.db"
        self.app = App("shop", store=self.url)

        @self.app.task
        async def send(to: str) -> str:
            return f"hello {to}"

        @self.app.schedule(CronSchedule("30 2 * * *", tz="Europe/Berlin"))
        async def nightly() -> None: ...

        self.send = send
        self.put("mail", timedelta(hours=1))

    def put(self, name: str, schedule: object, **options: Any) -> None:
        self.app.sync.schedules.put(name, self.send.s("ann"), schedule, **options)

    @contextmanager
    def working(self) -> Iterator[None]:
        with self.app.background():
            wait_until(lambda: len(self.app.sync.schedules.list()) > 1)
            yield

    def invoke(self, *arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["schedule", *arguments, "--store", self.url], prog_name="onthedot")
        assert result.exit_code == code, result.output
        return result

    def do(self, *arguments: str, code: int = 0) -> str:
        return self.invoke(*arguments, code=code).stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.do(*arguments, "--json"))


@pytest.fixture
def console(folder: Path) -> Iterator[Console]:
    console = Console(folder)
    yield console
    console.app.shutdown()


def columns(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in text.splitlines()]


def test_schedules_are_listed(console: Console) -> None:
    with console.working():
        head, mail, nightly = columns(console.do("list"))
    assert head == ["NAME", "STATE", "NEXT", "LAST", "RUNS", "SKIPPED", "OWNER", "RULE"]
    next_run = console.app.sync.schedules.get("mail").next_run
    assert next_run is not None
    shown = next_run.astimezone().isoformat(" ", "seconds")
    assert mail == ["mail", "enabled", shown, "-", "0", "0", "data", "every 1 h"]
    assert nightly[:2] + nightly[3:] == ["nightly", "enabled", "-", "0", "0", "code", "30 2 * * * (Europe/Berlin)"]


def test_list_names_problems_of_schedules(console: Console) -> None:
    with console.working():
        console.do("pause", "mail", "--reason", "no mails today")
    console.put("over", datetime.now(UTC) + timedelta(days=9))
    store_over(console.app, "over")
    result = console.invoke("list")
    rows = columns(result.stdout)
    found = {row[0]: row for row in rows}
    assert found["mail"][1:3] == ["paused", "-"]
    assert rows[2] == ["", "no mails today"]
    assert found["over"][1:3] == ["over", "-"]


def test_schedules_without_any_worker_are_no_orphans(console: Console) -> None:
    """As in the seconds of a deployment."""
    with console.working():
        assert console.invoke("list").stderr == ""
    result = console.invoke("list")
    assert [row[1] for row in columns(result.stdout)[1:]] == ["enabled", "enabled"]
    assert result.stderr == "no worker is running, so nothing fires until one starts\n"
    other = App("shop", store=console.url)
    with other.background():
        wait_until(lambda: console.invoke("list").stderr == "")
        rows = columns(console.do("list"))
        assert rows[3][:2] == ["nightly", "orphan"]
        assert rows[4] == ["", "no worker that runs declares it any more"]
    other.shutdown()


def store_over(app: App, name: str) -> None:
    from msgspec.structs import replace

    async def end(link: Any) -> None:
        record = next(each for each in (await link.store.schedules()) if each.name == name)
        assert list(await link.store.put_schedules([replace(record, next_at=None)])) == [True]

    app.runtime.portal.run_sync(end)


def test_schedules_are_listed_as_json(console: Console) -> None:
    (mail,) = console.json("list")["schedules"]
    assert (mail["name"], mail["source"], mail["args"], mail["owner"]) == ("mail", "send", {"to": "ann"}, "data")
    assert (mail["enabled"], mail["run_count"], mail["rule"], mail["orphan"]) == (True, 0, "every 1 h", False)
    assert datetime.fromisoformat(mail["next_run"]) > datetime.now(UTC)


def test_store_without_schedules_prints_a_hint(console: Console) -> None:
    console.do("delete", "mail")
    console.send.delay("x")
    result = console.invoke("list")
    assert (result.stdout, "no schedule" in result.stderr) == ("", True)
    assert "there is no schedule" in console.invoke("plan").stderr
    assert console.json("list") == {"schedules": []}


def test_schedule_is_paused_and_resumed(console: Console) -> None:
    assert console.do("pause", "mail", "--reason", "why not") == "paused mail\n"
    assert not console.app.sync.schedules.get("mail").enabled
    assert console.json("pause", "mail", "--reason", "two")["reason"] == "two; no worker is running"
    result = console.do("resume", "mail")
    assert re.fullmatch(r"resumed mail; next \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d\n", result)
    assert console.app.sync.schedules.get("mail").enabled


def test_schedule_is_run_now(console: Console) -> None:
    uuid = console.do("run", "mail").strip()
    assert console.app.sync.get(uuid).source == "send"
    result = console.invoke("run", "mail", code=1)
    assert f"schedule mail runs already, and its overlap forbids another: {uuid}" in result.stderr
    with console.working():
        assert console.app.handle(uuid).result(timeout=10) == "hello ann"
    assert console.json("run", "mail")["source"] == "send"
    assert console.app.sync.schedules.get("mail").run_count == 0


def test_schedule_is_deleted(console: Console) -> None:
    with console.working():
        result = console.invoke("delete", "nightly", code=1)
        assert "schedule 'nightly' is declared by code and would come back" in result.stderr
    assert console.do("delete", "nightly") == "deleted nightly\n"  # an orphan now
    assert console.json("delete", "mail") == {"deleted": "mail"}
    assert console.app.sync.schedules.list() == []


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "delete", "plan"])
def test_unknown_schedule_is_refused(console: Console, verb: str) -> None:
    assert "onthedot: no schedule 'male'; there are: mail" in console.invoke(verb, "male", code=1).stderr


def test_missing_store_is_not_created_by_reading_schedules(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["schedule", "list", "--store", f"sqlite:///{tmp_path}/none.db"])
    assert (result.exit_code, [*tmp_path.iterdir()]) == (3, [])


# -- plan


def test_plan_prints_the_next_runs(console: Console) -> None:
    console.put("tokyo", "0 9 * * *", tz="Asia/Tokyo")
    head, *rows = columns(console.do("plan", "--hours", "24", "--limit", "100", "--utc"))
    assert head == ["UTC", "IN ITS ZONE", "SCHEDULE"]
    tokyo = [row for row in rows if row[-1] == "tokyo"]
    assert [row[0][10:] + " =" + row[1][3:] for row in tokyo] == [" 00:00:00+00:00 = 09:00:00 Asia/Tokyo"]
    mails = [row for row in rows if row[-1] == "mail"]
    assert len(mails) == 24
    assert mails[0][1].endswith(" UTC")
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert columns(console.do("plan"))[0] == ["LOCAL TIME", "IN ITS ZONE", "SCHEDULE"]


def test_plan_marks_changes_of_the_clocks(console: Console) -> None:
    console.put("hourly", "30 * * * *", tz="Europe/Berlin", start=datetime(2030, 1, 1, tzinfo=UTC))
    console.put("fixed", "30 2 * * *", tz="Europe/Berlin", start=datetime(2030, 1, 1, tzinfo=UTC))

    def shown(name: str, day: str) -> list[str]:
        text = console.do("plan", name, "--until", "2030-12-01T00:00", "--limit", "10000", "--utc")
        lines = text.splitlines()
        pairs = [
            f"{row[11:19]} = {row[27:].split()[1]} {note.strip()}" for row, note in pairwise(lines) if row[:10] == day
        ]
        return [pair for pair in pairs if "clocks" in pair]

    forward = "clocks go forward: its hour is left out"
    first, second = (f"clocks go back: the {which} time round" for which in ("1st", "2nd"))
    assert shown("fixed", "2030-03-31") == [f"01:00:00 = 03:00:00 {forward}"]
    assert shown("fixed", "2030-10-27") == [f"00:30:00 = 02:30:00 {first}"]
    assert shown("hourly", "2030-10-27") == [f"00:30:00 = 02:30:00 {first}", f"01:30:00 = 02:30:00 {second}"]
    assert shown("hourly", "2030-03-31") == []


def test_plan_draws_the_runs_per_hour(console: Console) -> None:
    then = f"{datetime.now(UTC) + timedelta(hours=5):%H}"  # an hour that has not begun
    console.put("fast", timedelta(seconds=1))
    console.put("daily", f"0 {int(then)} * * *")

    def load(*names: str) -> dict[str, str]:
        lines = console.do("plan", *names, "--utc").partition("runs per hour\n\n")[2].splitlines()
        return {line[:5]: line[5:] for line in lines}

    assert len(load()) == 24
    assert load()[f"{then}:00"] == f"  {'#' * 40} 3602", "3600 and the two others"
    assert load("daily") == {}, "a run is all that the table shows"
    assert "\n3,600 runs per hour\n" in console.do("plan", "fast")


def test_plan_prints_json(console: Console) -> None:
    soon = datetime.now(UTC) + timedelta(hours=2)  # the load is that of 24 hours from the current one on
    wall = soon.astimezone(ZoneInfo("Asia/Tokyo"))
    console.put("tokyo", f"0 {wall.hour} * * *", tz="Asia/Tokyo")
    found = console.json("plan", "tokyo")
    (run,) = found["runs"]
    at = datetime.fromisoformat(run["at"])
    assert (run["name"], run["mark"], at.hour, at.utcoffset()) == ("tokyo", "", soon.hour, timedelta(0))
    assert datetime.fromisoformat(run["wall"]) == at
    assert datetime.fromisoformat(run["wall"]).hour == wall.hour
    assert len(found["load"]) == 24
    assert sum(each["runs"] for each in found["load"]) == 1


def test_plan_of_a_schedule_that_does_not_fire_has_a_warning(console: Console) -> None:
    console.do("pause", "mail", "--reason", "holidays")
    result = console.invoke("plan", "mail")
    assert "mail: paused (holidays); what follows is what it would do" in result.stderr
    assert "mail" in result.stdout
    assert "mail" not in console.do("plan")


def test_plan_with_nothing_in_range_shows_the_next_run_of_each_schedule(console: Console) -> None:
    console.put("far", datetime.now(UTC) + timedelta(days=9))
    console.put("farther", datetime.now(UTC) + timedelta(days=99))
    console.do("delete", "mail")
    result = console.invoke("plan", "--hours", "12")
    assert result.stderr == "nothing runs within 12 h; the next runs:\n"
    assert [row[-1] for row in columns(result.stdout)] == ["SCHEDULE", "far", "farther"]
    found = console.json("plan")
    assert (found["runs"], [run["name"] for run in found["next"]]) == ([], ["far", "farther"])
    assert (
        "nothing runs until 2000-01-01 00:00:00+00:00"
        in console.invoke("plan", "--until", "2000-01-01T00:00Z", "--utc").stderr
    )


@pytest.mark.parametrize("wrong", [["--hours", "0"], ["--hours", "x"], ["--until", "soon"], ["--limit", "0"]])
def test_wrong_usage_of_schedule_is_refused(console: Console, wrong: list[str]) -> None:
    assert console.invoke("plan", *wrong, code=2).stdout == ""


def test_plan_hints_at_more_runs(console: Console) -> None:
    assert "there may be more: --limit 50" in console.invoke("plan", "--limit", "5").stderr


# -- rules of the user's own


def test_custom_rules_can_be_computed_with_the_app(console: Console) -> None:
    (console.folder / "app.py").write_text(APP)
    program = "import asyncio, app\nasync def main():\n    async with app.app.running(): pass\nasyncio.run(main())"
    subprocess.run([sys.executable, "-c", program], cwd=console.folder, check=True)
    result = console.invoke("plan", "own", code=1)
    assert "schedule 'own' has a rule of its own, and its code is not here to compute it" in result.stderr

    def with_app(*arguments: str) -> str:
        run = subprocess.run(
            [sys.executable, "-m", "onthedot", "schedule", *arguments, "-A", "app.py"],
            cwd=console.folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return run.stdout

    assert len(columns(with_app("plan", "own", "--hours", "72").partition("\n\n")[0])) == 4
    assert with_app("pause", "own") == "paused own\n"


def test_plan_of_a_declared_interval_needs_no_code(console: Console) -> None:
    """A schedule without its code in this process can be paused and resumed."""
    other = App("shop", store=console.url)

    @other.schedule(IntervalSchedule(3600))
    async def tick() -> None: ...

    with other.background():
        wait_until(lambda: "tick" in console.do("list"))
        assert console.do("pause", "tick") == "paused tick\n"
        assert console.do("resume", "tick").startswith("resumed tick; next ")
        assert len(console.do("run", "tick").strip()) == 36


def plan_from_code(folder: Path, *arguments: str) -> tuple[list[str], str]:
    run = subprocess.run(
        [sys.executable, "-m", "onthedot", "schedule", "plan", "-A", "app.py", *arguments],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [row[-1] for row in columns(run.stdout)[1:]], run.stderr


@pytest.mark.parametrize("store", ["sqlite:///shop.db", "redis://127.0.0.1:1", "memory://"])
def test_plan_of_an_app_needs_no_store(folder: Path, store: str) -> None:
    (folder / "app.py").write_text(APP.replace("sqlite:///shop.db", store))
    names, err = plan_from_code(folder, "--hours", "50")
    assert names == ["own", "own"]
    assert err.startswith("from the code alone: ")
    assert [each.name for each in folder.iterdir() if each.suffix == ".db"] == []


def test_plan_of_an_app_has_what_its_code_declares_now(console: Console) -> None:
    """The store has the schedules of the code before: nightly."""
    with console.working():
        pass
    (console.folder / "app.py").write_text(APP)
    names, err = plan_from_code(console.folder, "--hours", "24.01", "--limit", "100")
    assert (set(names), err) == ({"mail", "own"}, "")
