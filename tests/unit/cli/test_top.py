"""``onthedot top``: one picture in a pipe, JSON objects, and live at a terminal."""

from __future__ import annotations

import json
import re
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from onthedot.cli import main
from onthedot.cli.output import Screen
from onthedot.cli.top_view import picture, sparkline
from onthedot.operations.feed_state import Rates
from onthedot.operations.live_view import LiveSnapshot
from onthedot.operations.run_times import RunTimes
from onthedot.operations.sources import SourceInfo
from tests.support.waits import wait_until
from tests.unit.cli.conftest import Console, Running, Shop

pytest.importorskip("pty")
from tests.unit.cli.terminal import terminal


def frames(running: Running) -> list[Any]:
    return [json.loads(line) for line in list(running.lines) if line.endswith("\n")]


def test_top_prints_one_plain_picture_in_a_pipe(console: Console) -> None:
    console.work(console.add("fail", order=7), console.add("greet", name="ann"))
    console.add("greet", name="bob")
    console.do("source", "pause", "greet", "--reason", "deploy")
    for expected in (["top"], ["top", "--once"]):
        text = console.do(*expected)
        head, counts, rates, history, _, columns, *rest = text.splitlines()
        assert " · shop · sqlite:///" in head
        assert counts == "1 ready · 0 running · 0 scheduled · 1 failed"
        assert rates == "done 0.0/s · failed 0.0/s · retried 0.0/s · started 0.0/s"
        assert history == f"{'_' * 59} ended/s, most 0"
        assert columns.split() == [
            "SOURCE", "READY", "RUN", "SCHED", "DONE/S", "FAIL/S", "FAILED", "P50", "P95", "WORKERS"
        ]  # fmt: skip
        assert rest[0].split()[:2] == ["greet", "1"]
        assert re.search(r"[\d.]+ ms +[\d.]+ ms +0$", rest[0])
        assert rest[1].startswith("  paused ")
        assert rest[1].endswith(": deploy")
        assert "ValueError: no order 7 for 'c7'" in text


def test_top_prints_json_objects(console: Console) -> None:
    with console.app.background():
        console.app.handle(console.add("greet", name="ann")).result(timeout=15)
        lines = console.do("top", "--json", "--frames", "3", "--every", "0.05").splitlines()
    assert len(lines) == 3
    frame = json.loads(lines[-1])
    assert [source["name"] for source in frame["sources"]] == ["fail", "greet"]
    assert len(frame["workers"]) == 1
    assert set(frame["rates"]) == {"started", "done", "failed", "retried"}
    assert (frame["trouble"], len(frame["history"])) == ("", 59)


def test_top_survives_an_outage_of_the_store_and_ends_with_ctrl_c(shop: Shop) -> None:
    shop.worker()
    shop.result(shop.add("greet", name="ann"))
    running = shop.start("top", "--json", "--every", "0.1", "--store", "sqlite:///shop.db")
    wait_until(lambda: frames(running), 20)
    shop.result(shop.add("greet", name="bob"))
    shop.app.handle(shop.add("fail", order=3)).exception(timeout=15)
    wait_until(lambda: any(frame["rates"]["failed"] > 0 for frame in frames(running)), 20)
    wait_until(lambda: [each["message"] for each in frames(running)[-1]["failures"]] == ["no order 3 for 'c3'"], 20)
    for one in shop.started[:1]:
        one.tell(signal.SIGTERM)
        one.ended()
    shop.app.shutdown()
    file = shop.folder / "shop.db"
    file.rename(shop.folder / "away")
    wait_until(lambda: "does not exist any more" in frames(running)[-1]["trouble"], 20)
    (shop.folder / "away").rename(file)
    wait_until(lambda: frames(running)[-1]["trouble"] == "", 20)
    running.tell(signal.SIGINT)
    assert running.ended() == 0


def test_top_is_live_at_a_terminal(console: Console, tmp_path: Path) -> None:
    pytest.importorskip("rich")
    console.add("greet", name="ann")
    with terminal(tmp_path, "top", "--store", console.url, "--every", "0.1") as screen:
        assert "\x1b[?1049h" in screen.until("READY")  # the alternate screen
        console.add("fail", order=1)
        screen.until("fail ")
        screen.type("p")
        screen.until("frozen, p goes on")
        console.add("later", order=1)
        screen.type("p")
        screen.until("later")
        screen.type("q")
        screen.until("\x1b[?1049l")
        assert screen.ended() == 0
    with terminal(tmp_path, "top", "--store", console.url) as screen:
        screen.until("READY")
        screen.process.send_signal(signal.SIGINT)
        screen.until("\x1b[?1049l")
        assert screen.ended() == 0


def test_top_refuses_a_memory_store(console: Console) -> None:
    result = CliRunner().invoke(main, ["top", "--store", "memory://"])
    assert (result.exit_code, "memory:// lives inside one process" in result.stderr) == (2, True)
    result = CliRunner().invoke(main, ["top", "--store", "sqlite:///none.db"])
    assert (result.exit_code, "there is no file" in result.stderr) == (3, True)


def test_top_has_median_and_95th_percentile_of_run_times() -> None:
    timed = SourceInfo("greet", ready=1, run_times=RunTimes(p50=0.25, p95=4.0))
    untimed = SourceInfo("fail")
    rates = dict.fromkeys(("greet", "fail"), Rates(0, 0, 0, 0))
    frame = LiveSnapshot(datetime.now(UTC), rates["greet"], rates, (), (timed, untimed), (), ())
    _, (table,) = picture(Screen(), "shop", frame)
    columns = [each.title for each in table.columns]
    cells = [dict(zip(columns, row, strict=True)) for row in table.rows]
    assert [(row["P50"], row["P95"]) for row in cells] == [("250 ms", "4.0 s"), ("-", "-")]


def test_sparkline_scales_to_the_maximum() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "__"
    assert sparkline([0, 1, 1000, 500]) == "_▁█▄"
