"""``onthedot dev``: runs tasks, and reloads."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from onthedot.cli.dev import python_files
from tests.support.waits import wait_until
from tests.unit.cli.conftest import Running, Shop


def dev(shop: Shop, *arguments: str) -> Running:
    running = shop.start("dev", "app.py", *arguments)
    running.until(f"worker ready · shop · sqlite:///{shop.folder}/shop.db · 5 tasks · reloads when you save")
    return running


def save(shop: Shop, old: str, new: str) -> None:
    path = shop.folder / "app.py"
    path.write_text(path.read_text().replace(old, new))


def test_dev_reloads_on_save_and_ends_on_ctrl_c(shop: Shop) -> None:
    running = dev(shop)
    assert shop.result(shop.add("greet", name="ann")) == "hello ann"
    save(shop, "hello {name}", "good day {name}")
    running.until("app.py changed · reloading")
    running.until("worker ready", times=2)
    assert shop.result(shop.add("greet", name="ann")) == "good day ann"
    running.tell(signal.SIGINT)
    assert running.ended() == 0
    assert "Traceback" not in running.text


def test_running_task_finishes_while_the_new_code_starts(shop: Shop) -> None:
    running = dev(shop, "--stop-timeout", "20")
    uuid = shop.nap()
    wait_until(lambda: shop.notes() == ["begin a"])
    save(shop, "hello {name}", "good day {name}")
    running.until("worker ready", times=2)
    assert shop.result(shop.add("greet", name="ann")) == "good day ann"
    shop.go()
    assert shop.result(uuid) == "a"
    assert shop.notes() == ["begin a", "greet ann", "end a"]


def test_task_that_exceeds_the_stop_timeout_of_dev_is_requeued_uncounted(shop: Shop) -> None:
    dev(shop, "--stop-timeout", "0.1")
    uuid = shop.nap()
    wait_until(lambda: shop.notes() == ["begin a"])
    save(shop, "hello {name}", "good day {name}")
    wait_until(lambda: shop.notes() == ["begin a", "begin a"])
    shop.go()
    assert shop.result(uuid) == "a"
    info = shop.app.sync.get(uuid)
    assert (info.attempt, info.crashes) == (1, 0)


def test_dev_shows_broken_code_and_continues_at_the_next_save(shop: Shop) -> None:
    running = dev(shop)
    save(shop, "async def greet(", "async def greet((")
    running.until("waiting for the next save")
    assert "SyntaxError" not in running.text  # only one line
    assert "app.py:" in running.text
    save(shop, "async def greet((", "async def greet(")
    running.until("worker ready", times=2)
    save(shop, "app = App", "app = 1 / 0 or App")
    running.until("app.py cannot be imported: ZeroDivisionError: division by zero")
    running.until("waiting for the next save", times=2)
    running.tell(signal.SIGTERM)
    assert running.ended() == 0


def test_dev_starts_with_broken_code(shop: Shop) -> None:
    source = (shop.folder / "app.py").read_text()
    (shop.folder / "app.py").write_text("import nothing_of_the_kind")
    running = shop.start("dev", "app.py")
    running.until("No module named 'nothing_of_the_kind'")
    (shop.folder / "app.py").write_text(source)
    running.until("worker ready")


def test_dev_tries_again_while_the_store_cannot_be_used(shop: Shop) -> None:
    (shop.folder / "shop.db").write_text("no database, and long enough to be looked at " * 50)
    running = shop.start("dev", "app.py")
    running.until("file is not a database")
    running.until("trying again until the store can be used")
    assert "waiting for the next save" not in running.text
    (shop.folder / "shop.db").unlink()
    running.until("worker ready")
    assert running.text.count("file is not a database") == 1


def test_killed_dev_leaves_no_worker(shop: Shop) -> None:
    running = dev(shop)
    running.process.kill()
    wait_until(lambda: shop.alive() == [])


def test_dev_starts_a_dead_worker_again(shop: Shop) -> None:
    running = dev(shop)
    (child,) = running.children()
    os.kill(child, signal.SIGKILL)
    running.until("the worker died, killed by SIGKILL; starting another")
    running.until("worker ready", times=2)


def test_dev_does_not_watch_environments_and_hidden_folders(tmp_path: Path) -> None:
    for name in ("a.py", "pkg/b.py", ".git/c.py", "env/pyvenv.cfg", "env/lib/d.py", "__pycache__/e.py", "f.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(Path(name).name for name in python_files(tmp_path)) == ["a.py", "b.py"]
