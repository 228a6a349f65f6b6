"""How a worker starts: it waits for its store, chooses its event loop, and sets up its log."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.support.services import valkey
from tests.support.services.ports import free_port
from tests.unit.cli.conftest import Shop

SUMMARY = re.compile(r"\[done\] (\d+) more tasks? from greet: 0 failed, p50 [0-9.]+ ms, p95 [0-9.]+ ms")


def missing_store() -> str:
    return f"redis://127.0.0.1:{free_port()}"


def test_worker_waits_for_its_store(shop: Shop) -> None:
    with valkey.server() as server:
        port = server.port
        server.stop()
        worker = shop.start("worker", "app.py", "--store", server.url)
        worker.until(f"waiting 60 s more for the store: {server.url}")
        server.start(port)
        worker.until("worker ready")
        assert worker.text.count("waiting") == 1, "one line per ten seconds"
        worker.tell(signal.SIGTERM)
        assert worker.ended() == 0


def test_worker_gives_up_waiting_for_its_store(shop: Shop) -> None:
    url = missing_store()
    worker = shop.start("worker", "app.py", "--store", url, "--wait-for-store", "0.7")
    assert worker.ended() == 3
    assert f"onthedot: {url}: " in worker.text
    assert worker.text.count("waiting") == 1
    worker = shop.start("worker", "app.py", "--store", url, "--wait-for-store", "0")
    assert worker.ended() == 3
    assert "waiting" not in worker.text


def test_worker_that_waits_for_its_store_can_be_stopped(shop: Shop) -> None:
    worker = shop.start("worker", "app.py", "--store", missing_store())
    worker.until("waiting")
    worker.tell(signal.SIGTERM)
    assert worker.ended(5) == 0
    assert "Traceback" not in worker.text


def tell_loop(shop: Shop) -> None:
    """Adds a task that returns the module of its event loop."""
    source = "\n@app.task\nasync def loop() -> str:\n    return type(asyncio.get_running_loop()).__module__\n"
    path = shop.folder / "app.py"
    path.write_text(path.read_text() + source)


def test_worker_uses_uvloop_if_it_is_installed(shop: Shop) -> None:
    pytest.importorskip("uvloop")
    tell_loop(shop)
    shop.worker()
    assert shop.result(shop.add("loop")).startswith("uvloop")


def test_worker_uses_asyncio_without_uvloop(shop: Shop, tmp_path: Path) -> None:
    tell_loop(shop)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "uvloop.py").write_text("raise ImportError('not installed')")
    worker = shop.worker(env={"PYTHONPATH": str(tmp_path / "hidden")})
    assert shop.result(shop.add("loop")).startswith("asyncio")
    assert "uvloop" not in worker.text


def test_busy_worker_sums_up_its_lines(shop: Shop) -> None:
    shop.app.named("greet").delay_many([{"name": "ann"}] * 1500)
    worker = shop.worker("--burst")
    assert worker.ended() == 0
    single = worker.text.count("[done] task")
    summed = sum(int(number) for number in SUMMARY.findall(worker.text))
    assert (single + summed, summed > 0) == (1500, True), worker.text[-1000:]
    assert worker.text.rindex(" from greet: ") < worker.text.index("Scheduler stopped")


@pytest.mark.parametrize(("level", "shown"), [("debug", "DIWE"), ("WARNING", "WE")])
def test_log_level_is_the_least_that_is_written(shop: Shop, level: str, shown: str) -> None:
    source = "\n@app.task\nasync def say() -> None:\n    import logging\n    log = logging.getLogger('shop')\n"
    says = "".join(f"    log.{name}('{name[0].upper()} line')\n" for name in ("debug", "info", "warning", "error"))
    path = shop.folder / "app.py"
    path.write_text(path.read_text() + source + says)
    shop.add("say")
    worker = shop.worker("--burst", "--log-format", "json", "--log-level", level)
    assert worker.ended() == 0
    lines = [json.loads(line) for line in worker.lines]
    assert [line["message"][0] for line in lines if line["message"].endswith(" line")] == list(shown)
    assert any("[done]" in line["message"] for line in lines) == ("I" in shown)


def test_log_level_applies_to_a_logger_of_the_users_code(shop: Shop) -> None:
    path = shop.folder / "app.py"
    setup = "\nimport logging\nlogging.basicConfig(level='WARNING', format='mine: %(message)s')\n"
    path.write_text(path.read_text() + setup)
    shop.add("greet", name="ann")
    worker = shop.worker("--burst", "--log-level", "info")
    assert worker.ended() == 0
    assert "mine: [done] task" in worker.text
