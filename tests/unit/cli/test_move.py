"""``onthedot move`` on real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from onthedot import App, TaskCancelled
from onthedot.cli import main
from tests.support.waits import SOON, wait_until


class Two:
    """Two SQLite files; the first has tasks."""

    def __init__(self, folder: Path) -> None:
        self.urls = [f"sqlite:///{folder}/{name}.db" for name in ("one", "other")]
        self.one, self.other = (App("shop", store=url) for url in self.urls)

    def add(self, count: int, app: App | None = None, **options: object) -> list[str]:
        adding = (app or self.one).named("greet").options(after=100, **options)  # type: ignore[arg-type]
        return [handle.uuid for handle in adding.delay_many([{"name": str(n)} for n in range(count)])]

    def move(self, *flags: str, code: int = 0, to: str | None = None, source: str | None = None) -> str:
        command = ["move", "--from", source or self.urls[0], "--to", to or self.urls[1], *flags]
        result = CliRunner().invoke(main, command, prog_name="onthedot")
        assert result.exit_code == code, result.output
        return result.output

    def states(self, app: App, uuids: list[str]) -> set[str]:
        return {app.sync.get(uuid).state.value for uuid in uuids}


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    made = Two(tmp_path)
    yield made
    made.one.shutdown()
    made.other.shutdown()


def test_move_takes_pending_tasks_to_the_target(two: Two) -> None:
    uuids = two.add(3)
    two.one.sync.pause("greet", reason="stock")
    assert two.move().splitlines()[-1] == f"moved 3 tasks, 0 schedules, 1 limit to {two.urls[1]}"
    assert two.states(two.other, uuids) == {"scheduled"}
    assert two.states(two.one, uuids) == {"cancelled"}
    here = two.one.sync.get(uuids[0])
    there = two.other.sync.get(uuids[0])
    assert here.reason == f"moved to {two.urls[1]}"
    assert (there.args, there.schedule_at, there.added_at) == (here.args, here.schedule_at, here.added_at)
    with pytest.raises(TaskCancelled, match="moved to"):
        two.one.handle(uuids[0]).result(timeout=SOON)
    assert two.move().splitlines()[-1] == f"moved 0 tasks, 0 schedules to {two.urls[1]}", "and again: nothing left"


def test_tasks_are_moved_there_and_back(two: Two) -> None:
    uuids = two.add(3)
    for source, target in (two.urls, two.urls[::-1], two.urls):
        assert two.move(source=source, to=target).splitlines() == [f"moved 3 tasks, 0 schedules to {target}"]
    assert two.states(two.other, uuids) == {"scheduled"}


def test_target_file_has_the_same_name_from_every_folder(
    two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that continues a move recognizes its tasks by the name of the target."""
    (uuid,) = two.add(1)
    monkeypatch.chdir(tmp_path)
    assert two.move(to="sqlite:///other.db") == "moved 1 task, 0 schedules to sqlite:///other.db\n"
    assert two.one.sync.get(uuid).reason == f"moved to {two.urls[1]}"


def test_tasks_of_an_unfinished_move_are_not_moved_on(two: Two, tmp_path: Path) -> None:
    """The move was killed before it requeued the task, which therefore belongs to the other store."""
    (uuid,) = two.add(1)
    (lifted,) = two.one.runtime.portal.run_sync(lambda client: client.store.lift("killed", [uuid])).tasks
    two.other.runtime.portal.run_sync(lambda client: client.store.adopt([lifted]))
    third = f"sqlite:///{tmp_path}/third.db"
    result = two.move(source=two.urls[1], to=third, code=1)
    assert "1 task stays: a move that brought it here was not finished; run that one again first" in result
    assert two.move("--release", source=two.urls[1], to=third) == f"moved 1 task, 0 schedules to {third}\n"


def test_dry_run_prints_what_would_move(two: Two) -> None:
    two.add(2)
    assert two.move("--dry-run").split() == ["WHAT", "NAME", "WOULD", "MOVE", "task", "greet", "2"]
    assert json.loads(two.move("--dry-run", "--json")) == {"tasks": {"greet": 2}, "schedules": [], "limits": []}
    assert not Path(two.urls[1].removeprefix("sqlite:///")).exists(), "counting makes nothing"


def test_move_prints_json(two: Two) -> None:
    two.add(2)
    moved = json.loads(two.move("--json"))
    assert (moved["tasks"], moved["schedules"], moved["kept"], moved["running"], moved["stopped"]) == (
        2,
        [],
        {},
        0,
        False,
    )


def test_unique_key_taken_in_the_target_is_exit_code_1(two: Two) -> None:
    (mine,) = two.add(1, unique="k")
    (theirs,) = two.add(1, two.other, unique="k")
    assert f"task {mine} stays: its unique key is that of {theirs} there" in two.move(code=1)


def test_wrong_usage_of_move_is_refused(two: Two, tmp_path: Path) -> None:
    two.add(1)
    (tmp_path / "link.db").symlink_to(tmp_path / "one.db")
    assert "a move from a store to itself" in two.move(to=f"sqlite:///{tmp_path}/link.db", code=3)
    assert "nothing can be moved into another's" in two.move(to="memory://", code=2)
    assert "there is nothing to see from another" in two.move(source="memory://", code=2)
    assert "there is no file" in two.move(source=f"sqlite:///{tmp_path}/none.db", code=3)
    assert "is not a store's URL" in two.move(to="shop.db", code=2)
    assert "has nothing of an app 'cart'" in two.move("-n", "cart", code=3)


def test_interrupted_move_stops_after_a_batch_and_continues_later(two: Two) -> None:
    uuids = two.add(3_000)
    command = [sys.executable, "-m", "onthedot", "move", "--from", two.urls[0], "--to", two.urls[1]]
    env = {name: value for name, value in os.environ.items() if not name.startswith("ONTHEDOT_")}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(two.other.sync.find(limit=1)) == 1, 60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    if process.returncode == 130:
        assert "stopped before the end: run it again to go on" in out
        assert "stopping after this batch; Ctrl+C again stops now" in err
    else:
        assert (process.returncode, err) == (0, ""), "it was faster than the signal"
    two.move()
    found = two.other.sync.find(limit=5_000)
    assert {info.uuid for info in found} == set(uuids)
    assert {info.state.value for info in found} == {"scheduled"}
    assert found.tasks[0].schedule_at > datetime.now(UTC)
