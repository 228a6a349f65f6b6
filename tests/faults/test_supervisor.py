"""The supervisor beats for its worker processes: who dies is taken over at once, who only blocks is not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import LONG, scaled, shop
from tests.faults.fleet import wait_for
from tests.faults.grounds import GROUNDS, Ground, grounds
from tests.faults.ledger import Entry, Ledger, taken_over_after
from tests.faults.machines import Machine, machines, parents
from tests.faults.test_kill import sessions

pytestmark = [
    pytest.mark.fault,
    pytest.mark.timeout(900 if LONG else 300),
]  # one that dies young is started again later and later

LEASE = 2  # seconds
long = pytest.mark.skipif(not LONG, reason="ONTHEDOT_FAULTS=long")


def begun(ledger: Ledger, uuid: str) -> list[Entry]:
    return [entry for entry in ledger.entries() if entry.uuid == uuid and entry.what == "begin"]


def holder(ledger: Ledger, uuid: str, fleet: list[Machine]) -> Machine:
    wait_for(lambda: len(begun(ledger, uuid)) == 1, 30)
    pid = begun(ledger, uuid)[0].pid
    return next(machine for machine in fleet if pid in machine.children())


@pytest.mark.parametrize("ground", grounds("redis", "postgres"), indirect=True)
def test_a_child_is_taken_over_at_once_and_a_machine_after_its_lease(
    ground: Ground, ledger: Ledger, ledger_path: Path
) -> None:
    """A dead child would cost half a minute, if its supervisor did not see it die."""
    took = []
    with shop.app.override(store=ground.at(30)), machines(2, ground.at(30), ledger_path) as fleet:
        wait_for(lambda: sessions() == 2, 30)
        for _ in range(scaled(1, 20)):
            handle = shop.slow.delay(600)
            machine = holder(ledger, handle.uuid, fleet)
            (pid,) = machine.children()
            died = machine.kill_child(pid)
            wait_for(lambda handle=handle: len(begun(ledger, handle.uuid)) == 2, 20)
            handle.cancel()
            if LONG:
                wait_for(lambda: sessions() == 2, 60)
            took += taken_over_after(ledger.entries(), pid, died)
    print(f"\na child: taken over after {', '.join(f'{s * 1000:.0f}' for s in took)} ms")
    assert max(took) <= 5, "by its supervisor, not by its lease"
    assert not LONG or sorted(took)[len(took) // 2] <= 0.1

    if not LONG:  # killed machines are also in test_shared.py
        return
    with shop.app.override(store=ground.at(LEASE)), machines(2, ground.at(LEASE), ledger_path) as fleet:
        wait_for(lambda: sessions() == 2, 30)
        handle = shop.slow.delay(600)
        (pid,), died = holder(ledger, handle.uuid, fleet).kill()
        wait_for(lambda: len(begun(ledger, handle.uuid)) == 2, 20)
        handle.cancel()
    (late,) = taken_over_after(ledger.entries(), pid, died)
    print(f"a machine: after {late:.2f} s with a lease of {LEASE} s")
    assert LEASE / 2 < late <= LEASE + 1


@pytest.fixture(scope="module")
def redis() -> Iterator[Ground]:
    with GROUNDS["redis"]() as ground:
        yield ground


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    book = Ledger(tmp_path_factory.mktemp("supervisor") / "ledger")
    yield book
    book.close()


@pytest.fixture(scope="module")
def pair(redis: Ground, book: Ledger) -> Iterator[list[Machine]]:
    """Two machines, so that what is lost would be taken over."""
    store = redis.at(LEASE)
    with shop.app.override(store=store), machines(2, store, book.path) as fleet:
        wait_for(lambda: sessions() == 2, 30)
        yield fleet


def test_who_blocks_or_has_to_beat_himself_runs_it_once(pair: list[Machine], book: Ledger) -> None:
    """For three leases: a call that holds the GIL, and on the other machine a supervisor that is stopped."""
    gripped = shop.grip.delay(3 * LEASE)
    busy = holder(book, gripped.uuid, pair)
    slow = shop.slow.delay(3 * LEASE)
    other = holder(book, slow.uuid, pair)
    assert other is not busy
    other.tell(signal.SIGSTOP)
    assert slow.result(timeout=30) == "slow"
    other.tell(signal.SIGCONT)
    assert gripped.result(timeout=30) == "gripped"
    for handle in (gripped, slow):
        assert len(begun(book, handle.uuid)) == 1
        assert handle.info().crashes == 0


def test_without_hints_a_cancel_comes_with_a_beat(pair: list[Machine], redis: Ground, book: Ledger) -> None:
    handle = shop.slow.delay(600)
    holder(book, handle.uuid, pair)
    redis.drop_hints()
    try:
        assert handle.cancel()
        wait_for(handle.done, 20)
    finally:
        redis.drop_hints(False)
    assert handle.state().value == "cancelled"


@long
def test_a_child_that_is_stopped_runs_it_once(pair: list[Machine], book: Ledger) -> None:
    handle = shop.slow.delay(3)
    (pid,) = holder(book, handle.uuid, pair).children()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(3 * LEASE)  # the time that is looked at
    os.kill(pid, signal.SIGCONT)
    assert handle.result(timeout=30) == "slow"
    assert (len(begun(book, handle.uuid)), handle.info().crashes) == (1, 0)


@long
def test_a_rolling_restart_hands_over_without_a_crash(pair: list[Machine], book: Ledger) -> None:
    handles = shop.work.delay_many([{"number": number} for number in range(300)])
    before = {machine.supervisor.pid: machine.children() for machine in pair}
    wait_for(lambda: len(book.entries()) > 20, 30)
    for machine in pair:
        machine.tell(signal.SIGHUP)
    assert [handle.result(timeout=60) for handle in handles] == list(range(300))
    wait_for(lambda: all(not set(m.children()) & set(before[m.supervisor.pid]) for m in pair), 60)
    wait_for(lambda: sessions() == 2, 30)  # those that went have left nothing behind
    assert {handle.info().crashes for handle in handles} == {0}


def test_a_loop_that_stalls_loses_its_process(ledger_path: Path) -> None:
    with GROUNDS["redis"]() as own, shop.app.override(store=own.at(30)):
        handle = shop.stuck.delay()
        with machines(1, own.at(30), ledger_path, "--stall-limit", "1") as (machine,):
            wait_for(handle.done, 60)
            assert "died 1 times" in str(handle.exception(timeout=1))
            text = machine.log.read_text()
    assert "in stuck" in text, "faulthandler names the line"
    assert "stalled, killed by SIGABRT; starting another" in text


@long
def test_a_task_process_does_not_outlive_its_worker(pair: list[Machine], book: Ledger) -> None:
    handle = shop.crunch.delay()
    wait_for(lambda: len(begun(book, handle.uuid)) == 1, 30)
    child = next(pid for machine in pair for pid in machine.children() if pid in worked(book, handle.uuid))
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: len(begun(book, handle.uuid)) == 2, 30)
    first, second = begun(book, handle.uuid)
    wait_for(lambda: not Path(f"/proc/{first.pid}").exists(), 5)
    handle.cancel()
    wait_for(handle.done, 20)
    last = max(entry.at for entry in book.entries() if entry.pid == first.pid)
    assert last <= second.at + 0.3, "nobody computes what somebody else has"


def worked(book: Ledger, uuid: str) -> set[int]:
    """Whose process runs it, however far up."""
    above, found = begun(book, uuid)[0].pid, set[int]()
    tree = parents()
    while above in tree:
        found.add(above)
        above = tree[above]
    return found
