"""Tables fit the terminal, ids are short and accepted by every command, times are local with their offset."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from onthedot import AtMost
from onthedot.cli import main
from onthedot.cli.table import Column, TextTable, number
from tests.unit.cli.conftest import Console, Shop, common_start

LONG = "bank.example:443 refused this order, and the message is longer than a terminal is wide. " * 3
LISTS = [
    ["task", "list"], ["task", "list", "--state", "failed"], ["failed"], ["source", "list"], ["schedule", "list"],
    ["schedule", "plan"], ["worker", "list"], ["top", "--once"], ["doctor"],
]  # fmt: skip


@pytest.fixture
def full(console: Console) -> Iterator[Console]:
    """Tasks of all states with long names, arguments and errors, schedules, limits, a pause and a worker."""

    def refuse(order: int) -> None:
        raise ConnectionError(LONG)

    app = console.app
    app.task(name="reports.weekly.build_and_send_to_all_customers", limits=[AtMost(2, by="customer")])(
        lambda customer: None
    )
    app.task(name="charge_the_card", max_retries=1, backoff=0.01)(refuse)
    app.sync.schedules.put("a_schedule_with_a_rather_long_name", app.named("greet").s(name="x"), "*/5 * * * *")
    uuids = [console.add("charge_the_card", order=number) for number in range(3)]
    uuids += [console.add("greet", name=LONG) for _ in range(3)]
    uuids.append(console.add("reports.weekly.build_and_send_to_all_customers", customer="顧客" * 40))
    console.work(*uuids)
    app.named("greet").options(after=3600).delay(name="later")
    console.do("source", "pause", "greet", "--reason", LONG)
    with app.background():
        yield console


@pytest.mark.parametrize("arguments", LISTS, ids=" ".join)
def test_lists_fit_80_columns_and_use_200(full: Console, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    shown: dict[int, str] = {}
    for width in (80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        result = CliRunner().invoke(main, [*arguments, "--store", full.url])
        assert result.exit_code == int(arguments == ["doctor"]), result.output
        shown[width] = result.stdout
        widest = max(cells(line) for line in result.stdout.splitlines())
        assert widest <= width, result.stdout
    if LONG[:40] in shown[200] and arguments != ["doctor"]:
        assert max(cells(line) for line in shown[200].splitlines()) > 180


def cells(line: str) -> int:
    return len(line) + len(re.findall("[\u4e00-\u9fff]", line))


def test_lists_fit_a_terminal_of_80_columns(full: Console, tmp_path: Path) -> None:
    pytest.importorskip("rich")
    pytest.importorskip("pty")
    from tests.unit.cli.terminal import terminal

    for arguments in LISTS:
        with terminal(tmp_path, *arguments, "--store", full.url, columns=80) as screen:
            screen.ended()
            lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.text).splitlines()
        assert max(map(cells, lines)) <= 80, (arguments, lines)


def test_nothing_is_cut_in_a_pipe(full: Console) -> None:
    assert LONG[:150] in full.do("task", "list", "--state", "failed")


def test_short_ids_of_tasks_added_together_are_accepted(console: Console) -> None:
    handles = console.app.named("greet")
    uuids = [handle.uuid for handle in handles.delay_many([{"name": str(number)} for number in range(30)])]
    short = [line.split()[0] for line in console.do("task", "list", "--limit", "30").splitlines()[1:]]
    assert len(set(short)) == 30
    assert {len(each) for each in short} == {10}
    for uuid, each in zip(reversed(uuids), short, strict=True):
        assert uuid.endswith(each)
    for command in ("show", "explain"):
        assert console.json("task", command, short[7])["uuid"] == uuids[-8]
    assert console.do("task", "cancel", *short[:3]) == "cancelled 3 of 3\n"
    assert console.do("task", "retry", short[1]) == "retried 1 of 1\n"
    assert "is the beginning or end of several uuids" in console.do("task", "show", common_start(*uuids[:2]), code=1)


def test_short_ids_of_failures_and_workers_are_accepted(full: Console) -> None:
    found = re.search(r"onthedot task show (\S+)", full.do("failed"))
    assert found is not None
    assert full.json("task", "show", found[1])["source"] == "charge_the_card"
    worker = full.do("worker", "list").splitlines()[1].split()[0]
    assert len(worker) == 10
    assert "lives inside another program" in full.do("worker", "drain", worker, code=1)


def test_run_times_are_listed(console: Console) -> None:
    uuid = console.add("greet", name="ann")
    console.work(uuid)
    assert re.search(r"succeeded +greet .* [\d.]+ m?s +name='ann'", console.do("task", "list"))
    assert re.search(r"^took +[\d.]+ m?s$", console.do("task", "show", uuid), re.MULTILINE)


def test_times_are_local_with_their_offset(shop: Shop) -> None:
    tokyo = {"TZ": "Asia/Tokyo"}
    store = ("--store", "sqlite:///shop.db")
    _, out, _ = shop.run("add", "-n", "shop", "greet", "name=ann", "--at", "2999-11-17T09:00", *store, env=tokyo)
    uuid = out.strip()
    for command, shown, utc in (
        (["task", "show", uuid], "2999-11-17 09:00:00+09:00 (in ", "2999-11-17 00:00:00+00:00 (in "),
        (["task", "explain", uuid], "before 2999-11-17 09:00:00+09:00", "before 2999-11-17 00:00:00 UTC"),
        (["task", "list"], "due 2999-11-17 09:00:00+09:00", "due 2999-11-17 00:00:00+00:00"),
    ):
        assert shown in shop.run(*command, *store, env=tokyo)[1]
        assert utc in shop.run(*command, *store, "--utc", env=tokyo)[1]
        assert utc in shop.run("--utc", *command, *store, env=tokyo)[1]
    task = json.loads(shop.run("task", "show", uuid, *store, "--json", env=tokyo)[1])
    assert task["schedule_at"] == "2999-11-17T00:00:00Z"
    assert task["added_at"].endswith("Z")
    (task,) = json.loads(shop.run("task", "list", *store, "--json", env=tokyo)[1])["tasks"]
    assert task["schedule_at"] == "2999-11-17T00:00:00Z"


def test_time_of_a_table_can_be_given_to_a_filter(shop: Shop) -> None:
    env = {"TZ": "Asia/Tokyo"}
    shop.add("greet", name="ann")
    _, out, _ = shop.run("task", "list", "--store", "sqlite:///shop.db", env=env)
    found = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+09:00", out)
    assert found is not None
    assert abs(datetime.fromisoformat(found[0]) - datetime.now(UTC)) < timedelta(minutes=1)
    _, out, _ = shop.run("task", "list", "--since", found[0], "--json", "--store", "sqlite:///shop.db", env=env)
    assert len(json.loads(out)["tasks"]) == 1


def test_columns_that_matter_less_are_left_out() -> None:
    columns = [Column("NAME", least=4), number("RUNS", drop=1), Column("RULE", least=4)]
    table = TextTable(columns, [["weekly", "3", "mon 09"]])
    assert list(table.lines(None)) == [("NAME  ", "RUNS", "RULE  "), ("weekly", "   3", "mon 09")]
    assert list(table.lines(16)) == [("NAME", "RUNS", "RULE"), ("wee…", "   3", "mon…")]
    assert list(table.lines(15)) == [("NAME  ", "RULE  "), ("weekly", "mon 09")]


def test_last_column_is_wrapped_under_itself() -> None:
    table = TextTable([Column(""), Column("", wrap=True)], [["failed", "5 of 26 runs within a week (19 %)"]])
    assert list(table.lines(30)) == [("failed", "5 of 26 runs within a "), ("      ", "week (19 %)           ")]
