"""The look after every commit can fail: it is shown what it must find, in forged logs and on stores that let it be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import ClaimRequest, Limit, NewTask, SlotPool
from tests.faults import commits, shop
from tests.faults.commits import Commits, Moves, replayed
from tests.faults.grounds import GROUNDS, Ground

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]

KEYS = {"a": 1, "b": 1, "c": 1, "d": 2}
END: Moves = [(uuid, "succeeded") for uuid in KEYS]


def started(*uuids: str) -> Moves:
    return [(uuid, "running") for uuid in uuids]


@pytest.mark.parametrize(
    ("rows", "most"),
    [
        ([started("a", "b", "d")], {1: 2, 2: 1}),
        ([started("a"), started("b"), started("c")], {1: 3}),
        ([started("a"), started("b"), [*started("c"), ("a", "succeeded")]], {1: 2, 2: 0}),
        ([started("a"), started("b"), [("a", "succeeded")], started("c")], {1: 2}),
        ([started("a", "b"), started("c"), [("a", "succeeded")]], {1: 3}),  # for one commit only
        ([started("a", "b"), [*started("a"), ("a", "parked")]], {1: 2}),  # crashed, and taken again by the same call
        ([started("a", "b"), [("a", "parked")], started("c")], {1: 2}),
    ],
)
def test_the_most_after_a_commit(rows: list[Moves], most: dict[int, int]) -> None:
    seen = replayed([*rows, END], KEYS)
    assert {key: seen.most[key] for key in most} == most


def test_starts_are_counted_and_an_end_that_is_missing_is_told() -> None:
    assert replayed([started("a", "b"), [("a", "ready")], started("a"), END], KEYS).starts == {"a": 2, "b": 1}
    with pytest.raises(AssertionError, match="1 still run"):
        replayed([started("a", "b"), [("b", "failed")]], KEYS)


def test_a_row_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers count moves; or there is an order of commits besides the log."""
    log = {
        0: b"[]",
        1: b'[[5, "a", "keyed", "running"]]',
        3: b'[[5, "b", "keyed", "ready"], [5, "a", "keyed", "ready"]]',
    }

    def read(after: str, limit: int) -> list[tuple[str, bytes]]:
        return [(str(n), text) for n, text in log.items() if n > int(after or -1)][:limit]

    monkeypatch.setattr(commits, "_read", read)
    assert [len(row) for row in Commits().rows()] == [1, 2]
    assert [len(row) for row in Commits(lambda: [3, 1]).rows()] == [2, 1]
    with pytest.raises(AssertionError, match="order of commits"):
        Commits(lambda: [1, 2, 3]).rows()
    del log[1]
    with pytest.raises(AssertionError, match="2 moves up to 3, after 0"):
        Commits().rows()


@pytest.mark.parametrize("ground", GROUNDS, indirect=True)
def test_a_store_that_lets_three_start_is_found_out(ground: Ground) -> None:
    with shop.app.override(store=ground.at(30)):
        three_at_once(ground.commits)


def test_a_file_that_lets_three_start_is_found_out(store: str) -> None:
    three_at_once(Commits)


def three_at_once(follow: Callable[[], Commits]) -> None:
    """An operator has raised the limits, and nobody has told those who look."""
    sources = {"keyed": "keyed/1", "paired": None}
    asked(lambda store: store.put_limits([Limit(name, cap=3, owner="operator") for name in ("keyed/*", "paired")]))
    log, group_of = follow(), dict[str, object]()
    tasks = [NewTask(new_uuid(), source, b"{}", lane=lane) for source, lane in sources.items() for _ in range(5)]
    group_of |= {task.uuid: task.source for task in tasks}
    asked(lambda store: store.add(tasks))
    asked(lambda store: store.heartbeat("w", b"", 30_000))
    for number in range(1, 6):  # one of each a commit
        request = ClaimRequest(number, [SlotPool(1, {source: 1}) for source in sources])
        asked(lambda store, ask=request: store.turn("w", [], ask))
    asked(lambda store: store.close("w"))
    assert replayed(log.rows(), group_of).most == {"keyed": 3, "paired": 3}


def asked(work: Callable[..., Any]) -> Any:
    return shop.app._runtime.portal.run_sync(lambda link: work(link.store))


@pytest.mark.parametrize("ground", ["postgres"], indirect=True)
def test_postgres_is_followed_in_the_order_of_commits(ground: Ground) -> None:
    """Of two transactions the one that began first ends last."""
    import psycopg

    url = ground.at(30)
    with shop.app.override(store=url):
        asked(lambda store: store.tally())
        log, plain = ground.commits(), url.partition("?")[0]
        with psycopg.connect(plain) as first, psycopg.connect(plain) as second:
            early = shop.work.options(connection=first).delay(1)
            late = shop.work.options(connection=second).delay(2)
            second.commit()
            first.commit()
        assert [[uuid for uuid, _ in row] for row in log.rows()] == [[late.uuid], [early.uuid]]
