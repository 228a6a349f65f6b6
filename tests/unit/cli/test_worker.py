"""Worker processes and their supervisor: start, stop, crash, restart."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.support.services.ports import free_port
from tests.support.waits import wait_until
from tests.unit.cli.conftest import Shop


def test_worker_starts_works_and_stops(shop: Shop) -> None:
    worker = shop.worker("--processes", "2")
    assert f"worker ready · 2 processes · shop · sqlite:///{shop.folder}/shop.db · 5 tasks\n" in worker.text
    assert shop.result(shop.add("greet", name="ann")) == "hello ann"
    worker.tell(signal.SIGTERM)
    assert worker.ended() == 0
    assert "worker stopped" in worker.text
    assert "Traceback" not in worker.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_task_finishes_before_the_worker_stops(shop: Shop, number: signal.Signals) -> None:
    port = free_port()
    worker = shop.worker("--health", f":{port}")
    uuid = shop.nap()
    wait_until(lambda: shop.notes() == ["begin a"])
    worker.tell(number)
    wait_until(lambda: get(port, "/readyz") == (503, {"status": "not ready", "trouble": {"worker 1": "is stopping"}}))
    later = shop.nap("b")
    shop.go()
    assert worker.ended() == 0
    assert shop.notes() == ["begin a", "end a"]
    assert (shop.state(uuid), shop.state(later)) == ("succeeded", "ready")


def test_task_that_does_not_finish_in_time_is_requeued_uncounted(shop: Shop) -> None:
    worker = shop.worker("--stop-timeout", "0.2")
    uuid = shop.nap()
    wait_until(lambda: shop.notes() == ["begin a"])
    worker.tell(signal.SIGTERM)
    assert worker.ended() == 0
    info = shop.app.sync.get(uuid)
    assert (info.state, info.attempt, info.crashes) == ("ready", 1, 0)


def test_second_signal_cancels_running_tasks(shop: Shop) -> None:
    worker = shop.worker("--stop-timeout", "60")
    uuid = shop.nap()
    wait_until(lambda: shop.notes() == ["begin a"])
    worker.tell(signal.SIGINT)
    worker.until("stopping")
    worker.tell(signal.SIGINT)
    assert worker.ended(5) == 0
    assert (shop.state(uuid), shop.notes()) == ("ready", ["begin a"])


def test_closed_terminal_stops_the_worker(shop: Shop) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    worker = shop.python("-m", "onthedot", "worker", "app.py", stdin=theirs)
    os.close(theirs)
    worker.until("worker ready")
    os.close(ours)
    worker.tell(signal.SIGHUP)
    assert worker.ended() == 0


def test_worker_continues_if_nobody_reads_its_output(shop: Shop) -> None:
    ours, theirs = os.pipe()
    worker = shop.python("-m", "onthedot", "worker", "app.py", stdout=theirs)
    os.close(theirs)
    assert os.read(ours, 100).startswith(b"worker ready")
    os.close(ours)
    (child,) = worker.children()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: worker.children() not in ([], [child]))
    assert shop.result(shop.add("greet", name="ann")) == "hello ann"


def test_blocked_process_is_killed_after_the_stop_timeout(shop: Shop) -> None:
    worker = shop.worker("--stop-timeout", "0.1")
    shop.add("block", until="go")
    wait_until(lambda: shop.notes() == ["blocking"])
    worker.tell(signal.SIGTERM)
    assert worker.ended() == 1
    assert "killed what did not stop in time" in worker.text


def test_killed_process_is_replaced_and_its_task_runs_again(shop: Shop) -> None:
    worker = shop.worker()
    uuid = shop.nap()
    wait_until(lambda: shop.notes() == ["begin a"])
    (child,) = worker.children()
    os.kill(child, signal.SIGKILL)
    worker.until("died, killed by SIGKILL; starting another")
    wait_until(lambda: shop.notes() == ["begin a", "begin a"])
    shop.go()
    wait_until(lambda: shop.state(uuid) == "succeeded")
    assert shop.app.sync.get(uuid).crashes == 1
    assert worker.children() != [child]


def test_process_that_is_killed_again_and_again_is_replaced_soon(shop: Shop) -> None:
    worker = shop.worker()
    for times in range(1, 6):
        shop.result(shop.add("greet", name="ann"))  # it is ready
        (child,) = worker.children()
        os.kill(child, signal.SIGKILL)
        worker.until("died, killed by SIGKILL; starting another", times)
    pauses = [float(seconds) for seconds in re.findall(r"starting another in ([0-9.]+) s", worker.text)]
    assert len(pauses) == 5
    assert max(pauses) <= 1


def test_processes_end_without_their_supervisor(shop: Shop) -> None:
    worker = shop.worker("--processes", "2")
    uuid = shop.nap()
    wait_until(lambda: shop.notes() == ["begin a"])
    children = worker.children()
    assert len(children) == 2
    worker.process.kill()
    wait_until(lambda: shop.alive() == [])
    info = shop.app.sync.get(uuid)
    assert (info.state, info.crashes) == ("ready", 0)  # released, not crashed


def test_blocked_process_ends_without_its_supervisor(shop: Shop) -> None:
    worker = shop.worker()
    shop.add("block", until="go")
    wait_until(lambda: shop.notes() == ["blocking"])
    worker.process.kill()
    wait_until(lambda: shop.alive() == [])


def test_rolling_restart_loses_no_task(shop: Shop) -> None:
    worker = shop.worker("--processes", "2")
    before = worker.children()
    uuid = shop.nap()
    wait_until(lambda: shop.notes() == ["begin a"])
    worker.tell(signal.SIGHUP)
    more = [shop.add("greet", name=str(number)) for number in range(5)]
    shop.go()
    worker.until("all workers have been replaced")
    more += [shop.add("greet", name=str(number)) for number in range(5, 8)]
    wait_until(lambda: all(shop.state(each) == "succeeded" for each in [uuid, *more]), 15)
    assert sorted(shop.notes()) == sorted(["begin a", "end a", *(f"greet {number}" for number in range(8))])
    assert len(worker.children()) == 2
    assert not set(before) & set(worker.children())


def test_rolling_restart_to_broken_code_keeps_the_old_processes(shop: Shop) -> None:
    worker = shop.worker()
    (shop.folder / "app.py").write_text("def broken(:")
    worker.tell(signal.SIGHUP)
    worker.until("cannot start, so the old ones stay: ")
    assert "app.py:1: invalid syntax: def broken(:" in worker.text
    assert shop.result(shop.add("greet", name="ann")) == "hello ann"


def test_burst_runs_due_tasks_and_stops(shop: Shop) -> None:
    uuids = [shop.add("greet", name=str(number)) for number in range(3)]
    later = shop.add("greet", after=60, name="later")
    worker = shop.worker("--burst", "--processes", "2")
    assert worker.ended() == 0
    assert [shop.state(uuid) for uuid in [*uuids, later]] == ["succeeded"] * 3 + ["scheduled"]
    assert "--burst leaves" not in worker.text


def test_burst_does_not_wait_for_paused_sources(shop: Shop) -> None:
    leased = shop.add("greet", name="ann")
    free = shop.add("email.send", to="ann")
    shop.app.sync.pause("greet")
    unknown = shop.app.named("gret").delay(name="ann").uuid
    worker = shop.worker("--burst")
    assert worker.ended(10) == 0
    assert (shop.state(leased), shop.state(free), shop.state(unknown)) == ("ready", "succeeded", "ready")
    assert "--burst leaves 2 due tasks: greet 1 (paused), gret 1 (this worker does not run it)\n" in worker.text


def test_burst_without_tasks_stops_at_once(shop: Shop) -> None:
    assert shop.worker("--burst").ended(5) == 0


def test_only_runs_some_sources(shop: Shop) -> None:
    mail = shop.add("email.send", to="ann")
    other = shop.add("greet", name="ann")
    worker = shop.worker("--only", "email.*", "--burst")
    assert worker.ended() == 0
    assert "shop.db · 1 task\n" in worker.text
    assert (shop.state(mail), shop.state(other)) == ("succeeded", "ready")


def test_concurrency_limits_tasks_per_process(shop: Shop) -> None:
    shop.worker("-c", "1")
    first = shop.nap("a")
    second = shop.nap("b")
    wait_until(lambda: shop.notes() == ["begin a"])
    assert [shop.state(first), shop.state(second)] == ["running", "ready"]
    shop.go()
    wait_until(lambda: shop.notes() == ["begin a", "end a", "begin b", "end b"])


def get(port: int, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_health_port_reports_readiness(shop: Shop) -> None:
    port = free_port()
    shop.worker("--health", f":{port}")
    assert get(port, "/healthz") == (200, {"status": "ok"})
    assert get(port, "/readyz") == (200, {"status": "ok"})
    assert get(port, "/other")[0] == 404
    with socket.create_connection(("127.0.0.1", port)) as rude:
        rude.sendall(b"\n\n")
    shop.add("block", until="go")
    wait_until(lambda: get(port, "/readyz")[0] == 503, 15)
    assert "something blocks its event loop" in get(port, "/readyz")[1]["trouble"]["worker 1"]
    assert get(port, "/healthz")[0] == 200
    shop.go()
    wait_until(lambda: get(port, "/readyz")[0] == 200, 15)


def test_taken_health_port_is_exit_code_1(shop: Shop) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, err = shop.run("worker", "app.py", "--health", f":{taken.getsockname()[1]}")
    assert code == 1
    assert re.fullmatch(r"onthedot: --health: cannot listen on 127.0.0.1:\d+: .*in use.*\n", err)


def test_worker_logs_json(shop: Shop) -> None:
    worker = shop.start("worker", "app.py", "--burst", "--log-format", "json")
    assert worker.ended() == 0
    lines = [json.loads(line) for line in worker.lines]
    ready = f"worker ready · shop · sqlite:///{shop.folder}/shop.db · 5 tasks"
    assert [line["message"] for line in lines][:2] == ["Scheduler started", ready]


def test_workers_are_listed_and_drained(shop: Shop) -> None:
    worker = shop.worker("--processes", "2", env={"ONTHEDOT_RELEASE": "r7"})
    first, second = shop.json("worker", "list")["workers"]
    assert first["release"] == "r7"
    assert "RELEASE" in shop.do("worker", "list")
    assert sorted([first["pid"], second["pid"]]) == worker.children()
    assert (first["app"], first["running"], first["sources"][0]) == ("shop", 0, "block")
    assert first["started"] is not None
    assert first["concurrency"]["async"] == 100
    result = shop.do("worker", "drain", first["id"])
    assert f"worker {first['id'][-10:]} (pid {first['pid']}) finishes" in result
    wait_until(lambda: worker.children() == [second["pid"]])
    shop.do("worker", "drain", second["id"])
    assert worker.ended() == 0  # without processes the supervisor ends
    assert "nobody works on this store" in shop.run("worker", "list", "--store", "sqlite:///shop.db")[2]


def test_worker_inside_another_program_is_not_drained(shop: Shop) -> None:
    (shop.folder / "web.py").write_text("from app import app\nif __name__ == '__main__':\n    app.run()\n")
    web = shop.python("web.py")
    wait_until(lambda: (shop.folder / "shop.db").exists() and shop.json("worker", "list")["workers"])
    (worker,) = shop.json("worker", "list")["workers"]
    code, _, err = shop.run("worker", "drain", worker["id"], "--store", "sqlite:///shop.db")
    assert (code, "lives inside another program" in err) == (1, True)
    code, _, err = shop.run("worker", "drain", "nope", "--store", "sqlite:///shop.db")
    assert (code, err) == (1, f"onthedot: no worker nope; there are: {worker['id']}\n")
    assert web.process.poll() is None
    web.tell(signal.SIGTERM)
    assert web.ended() == 0


def test_process_that_exits_by_itself_is_started_again(shop: Shop) -> None:
    source = (shop.folder / "app.py").read_text()
    (shop.folder / "app.py").write_text(source + "\n@app.task\nasync def leave() -> None:\n    os._exit(0)\n")
    worker = shop.worker()
    uuid = shop.add("leave")
    worker.until("died, exit code 0; starting another", 3)  # then the task has crashed too often
    wait_until(lambda: shop.state(uuid) == "failed")
    assert shop.result(shop.add("greet", name="ann")) == "hello ann"


def slow_to_import(shop: Shop, ends: str) -> None:
    """An app whose import writes its pid, waits for a file and then runs `ends`."""
    source = "import os, pathlib, time\nwith open('pids', 'a') as f: f.write(f'{os.getpid()}\\n')\n"
    wait = f"while not pathlib.Path('go').exists(): time.sleep(0.01)\n{ends}\n"
    (shop.folder / "app.py").write_text(source + wait + (shop.folder / "app.py").read_text())


def pids(shop: Shop) -> list[int]:
    there = shop.folder / "pids"
    return [int(line) for line in there.read_text().split()] if there.exists() else []


def test_process_killed_before_it_was_ready_is_started_again(shop: Shop) -> None:
    slow_to_import(shop, "pass")
    worker = shop.start("worker", "app.py")
    for times in range(1, 4):  # more often than a process may end by itself
        wait_until(lambda times=times: len(pids(shop)) == times)
        os.kill(pids(shop)[-1], signal.SIGKILL)
        worker.until("died, killed by SIGKILL; starting another", times)
    shop.go()
    worker.until("worker ready")


def test_worker_gives_up_after_three_silent_failed_starts(shop: Shop) -> None:
    slow_to_import(shop, "os._exit(7)")
    shop.go()
    worker = shop.start("worker", "app.py")
    assert worker.ended() == 7
    assert worker.text.count("died, exit code 7; starting another") == 2
    assert "onthedot: the worker ended before it was ready, exit code 7\n" in worker.text
    assert len(pids(shop)) == 3


def test_app_may_be_given_by_module_or_environment(shop: Shop) -> None:
    for arguments in (["-A", "app:app"], ["app"], ["app:app"], ["app.py:app"]):
        worker = shop.start("worker", *arguments, "--burst")
        assert (worker.ended(), "worker ready" in worker.text) == (0, True)
    worker = shop.start("worker", env={"ONTHEDOT_APP": "app:app", "ONTHEDOT_WORKER_BURST": "1"})
    assert worker.ended() == 0
