"""``onthedot schedule``: on a real file, without the code that declared what is in it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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


class Desk:
    """A file with schedules in it, and the command line on it."""

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
def desk(folder: Path) -> Iterator[Desk]:
    desk = Desk(folder)
    yield desk
    desk.app.shutdown()


def columns(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in text.splitlines()]


def test_list(desk: Desk) -> None:
    with desk.working():
        head, mail, nightly = columns(desk.do("list"))
    assert head == ["NAME", "STATE", "NEXT", "LAST", "RUNS", "SKIPPED", "OWNER", "RULE"]
    next_run = desk.app.sync.schedules.get("mail").next_run
    assert next_run is not None
    assert mail == ["mail", "enabled", f"{next_run:%Y-%m-%d %H:%M:%S}", "-", "0", "0", "data", "every 1 h"]
    assert nightly[:2] + nightly[3:] == ["nightly", "enabled", "-", "0", "0", "code", "30 2 * * * (Europe/Berlin)"]


def test_list_says_what_is_wrong(desk: Desk) -> None:
    with desk.working():
        desk.do("pause", "mail", "--reason", "no mails today")
    desk.put("over", datetime.now(UTC) + timedelta(days=9))
    store_over(desk.app, "over")
    found = {row[0]: row for row in columns(desk.do("list"))}
    assert (found["mail"][1:3], found["mail"][-1]) == (["paused", "-"], "no mails today; no worker is running")
    assert (found["nightly"][1], found["nightly"][-1]) == ("orphan", "no worker is running")
    assert found["over"][1:3] == ["over", "-"]


def store_over(app: App, name: str) -> None:
    from msgspec.structs import replace

    async def end(link: Any) -> None:
        record = next(each for each in (await link.store.schedules()) if each.name == name)
        assert list(await link.store.put_schedules([replace(record, next_at=None)])) == [True]

    app.runtime.portal.run_sync(end)


def test_list_json(desk: Desk) -> None:
    (mail,) = desk.json("list")["schedules"]
    assert (mail["name"], mail["source"], mail["args"], mail["owner"]) == ("mail", "send", {"to": "ann"}, "data")
    assert (mail["enabled"], mail["run_count"], mail["rule"], mail["orphan"]) == (True, 0, "every 1 h", False)
    assert datetime.fromisoformat(mail["next_run"]) > datetime.now(UTC)


def test_nothing_there(desk: Desk) -> None:
    desk.do("delete", "mail")
    desk.send.delay("x")
    result = desk.invoke("list")
    assert (result.stdout, "no schedule" in result.stderr) == ("", True)
    assert "nothing runs until then" in desk.invoke("plan").stderr
    assert desk.json("list") == {"schedules": []}


def test_pause_and_resume(desk: Desk) -> None:
    assert desk.do("pause", "mail", "--reason", "why not") == "paused mail\n"
    assert not desk.app.sync.schedules.get("mail").enabled
    assert desk.json("pause", "mail", "--reason", "two")["reason"] == "two; no worker is running"
    told = desk.do("resume", "mail")
    assert re.fullmatch(r"resumed mail; next \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\n", told)
    assert desk.app.sync.schedules.get("mail").enabled


def test_run(desk: Desk) -> None:
    uuid = desk.do("run", "mail").strip()
    assert desk.app.sync.get(uuid).source == "send"
    result = desk.invoke("run", "mail", code=1)
    assert f"schedule mail runs already, and its overlap forbids another: {uuid}" in result.stderr
    with desk.working():
        assert desk.app.handle(uuid).result(timeout=10) == "hello ann"
    assert desk.json("run", "mail")["source"] == "send"
    assert desk.app.sync.schedules.get("mail").run_count == 0


def test_delete(desk: Desk) -> None:
    with desk.working():
        result = desk.invoke("delete", "nightly", code=1)
        assert "schedule 'nightly' is declared by code and would come back" in result.stderr
    assert desk.do("delete", "nightly") == "deleted nightly\n"  # an orphan now
    assert desk.json("delete", "mail") == {"deleted": "mail"}
    assert desk.app.sync.schedules.list() == []


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "delete", "plan"])
def test_no_such_schedule(desk: Desk, verb: str) -> None:
    assert "onthedot: no schedule 'male'; there are: mail" in desk.invoke(verb, "male", code=1).stderr


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["schedule", "list", "--store", f"sqlite:///{tmp_path}/none.db"])
    assert (result.exit_code, [*tmp_path.iterdir()]) == (3, [])


# -- plan


def test_plan(desk: Desk) -> None:
    desk.put("tokyo", "0 9 * * *", tz="Asia/Tokyo")
    head, *rows = columns(desk.do("plan", "--hours", "24", "--limit", "100").partition("\n\n")[0])
    assert head == ["WALL TIME", "UTC", "SCHEDULE"]
    tokyo = [row for row in rows if row[-1] == "tokyo"]
    assert [row[0][14:] + " = " + row[1][11:] for row in tokyo] == [" 09:00:00 Asia/Tokyo = 00:00:00"]
    mails = [row for row in rows if row[-1] == "mail"]
    assert len(mails) == 24
    assert mails[0][0].endswith(" UTC")
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)


def test_plan_where_clocks_change(desk: Desk) -> None:
    desk.put("hourly", "30 * * * *", tz="Europe/Berlin", start=datetime(2030, 1, 1, tzinfo=UTC))
    desk.put("fixed", "30 2 * * *", tz="Europe/Berlin", start=datetime(2030, 1, 1, tzinfo=UTC))

    def shown(name: str, moment: str) -> list[str]:
        text = desk.do("plan", name, "--until", "2030-12-01T00:00", "--limit", "10000")
        return [f"{row[0]} | {row[-1]}" for row in columns(text) if row[0][4:].startswith(moment)]

    assert shown("fixed", "2030-03-31 ") == [
        "Sun 2030-03-31 03:00:00 Europe/Berlin | clocks go forward: its hour is left out"
    ]
    assert shown("fixed", "2030-10-27 0") == [
        "Sun 2030-10-27 02:30:00 Europe/Berlin | clocks go back: the 1st time round"
    ]
    assert shown("hourly", "2030-10-27 02:30:00 Europe") == [
        "Sun 2030-10-27 02:30:00 Europe/Berlin | clocks go back: the 1st time round",
        "Sun 2030-10-27 02:30:00 Europe/Berlin | clocks go back: the 2nd time round",
    ]
    assert shown("hourly", "2030-03-31 02:") == []


def test_the_load_of_the_day(desk: Desk) -> None:
    then = f"{datetime.now(UTC) + timedelta(hours=5):%H}"  # an hour that has not begun
    desk.put("fast", timedelta(seconds=1))
    desk.put("daily", f"0 {int(then)} * * *")

    def load(*names: str) -> dict[str, str]:
        lines = desk.do("plan", *names).partition("runs per hour (UTC)\n\n")[2].splitlines()
        return {line[:5]: line[5:] for line in lines}

    assert len(load()) == 24
    assert load()[f"{then}:00"] == f"  {'#' * 40} 3602", "3600 and the two others"
    assert {hour: bar for hour, bar in load("daily").items() if bar} == {f"{then}:00": f"  {'#' * 40} 1"}
    desk.put("far", datetime.now(UTC) + timedelta(days=9))
    assert load("far") == {}, "nothing to draw"


def test_plan_json(desk: Desk) -> None:
    desk.put("tokyo", "0 9 * * *", tz="Asia/Tokyo")
    found = desk.json("plan", "tokyo")
    (run,) = found["runs"]
    at = datetime.fromisoformat(run["at"])
    assert (run["name"], run["mark"], at.hour, at.utcoffset()) == ("tokyo", "", 0, timedelta(0))
    assert datetime.fromisoformat(run["wall"]) == at
    assert datetime.fromisoformat(run["wall"]).hour == 9
    assert len(found["load"]) == 24
    assert sum(each["runs"] for each in found["load"]) == 1


def test_plan_of_one_that_stands_still(desk: Desk) -> None:
    desk.do("pause", "mail", "--reason", "holidays")
    result = desk.invoke("plan", "mail")
    assert "mail: paused (holidays; no worker is running); what follows is what it would do" in result.stderr
    assert "mail" in result.stdout
    assert "mail" not in desk.do("plan")


@pytest.mark.parametrize("wrong", [["--hours", "0"], ["--hours", "x"], ["--until", "soon"], ["--limit", "0"]])
def test_wrong_usage(desk: Desk, wrong: list[str]) -> None:
    assert desk.invoke("plan", *wrong, code=2).stdout == ""


def test_more_than_is_shown(desk: Desk) -> None:
    assert "there may be more: --limit 50" in desk.invoke("plan", "--limit", "5").stderr


# -- rules of the user's own


def test_with_the_app_its_own_rules_can_be_computed(desk: Desk) -> None:
    (desk.folder / "app.py").write_text(APP)
    program = "import asyncio, app\nasync def main():\n    async with app.app.running(): pass\nasyncio.run(main())"
    subprocess.run([sys.executable, "-c", program], cwd=desk.folder, check=True)
    result = desk.invoke("plan", "own", code=1)
    assert "schedule 'own' has a rule of its own, and its code is not here to compute it" in result.stderr

    def with_app(*arguments: str) -> str:
        run = subprocess.run(
            [sys.executable, "-m", "onthedot", "schedule", *arguments, "-A", "app.py"],
            cwd=desk.folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return run.stdout

    assert len(columns(with_app("plan", "own", "--hours", "72").partition("\n\n")[0])) == 4
    assert with_app("pause", "own") == "paused own\n"


def test_an_interval_that_code_declares(desk: Desk) -> None:
    """Also one that this process has no code of can be stopped and started."""
    other = App("shop", store=desk.url)

    @other.schedule(IntervalSchedule(3600))
    async def tick() -> None: ...

    with other.background():
        wait_until(lambda: "tick" in desk.do("list"))
        assert desk.do("pause", "tick") == "paused tick\n"
        assert desk.do("resume", "tick").startswith("resumed tick; next ")
        assert len(desk.do("run", "tick").strip()) == 36
