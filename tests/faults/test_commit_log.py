"""The commit log detects exceeded limits: in forged change feeds, and on stores whose limit was raised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import ChangeEntry, ChangePage, ClaimRequest, Limit, NewTask, SlotPool, Transition
from tests.faults import commit_log, task_app
from tests.faults.commit_log import CommitLog, Transitions, replay
from tests.faults.server_stores import SERVER_STORES, ServerStore
from tests.support.app_access import call_store

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]

KEYS = {"a": 1, "b": 1, "c": 1, "d": 2}
END: Transitions = [(uuid, "succeeded") for uuid in KEYS]


def started(*uuids: str) -> Transitions:
    return [(uuid, "running") for uuid in uuids]


@pytest.mark.parametrize(
    ("rows", "most"),
    [
        ([started("a", "b", "d")], {1: 2, 2: 1}),
        ([started("a"), started("b"), started("c")], {1: 3}),
        ([started("a"), started("b"), [*started("c"), ("a", "succeeded")]], {1: 2, 2: 0}),
        ([started("a"), started("b"), [("a", "succeeded")], started("c")], {1: 2}),
        ([started("a", "b"), started("c"), [("a", "succeeded")]], {1: 3}),  # for one commit only
        ([started("a", "b"), [*started("a"), ("a", "parked")]], {1: 2}),  # crashed, and claimed again by the same call
        ([started("a", "b"), [("a", "parked")], started("c")], {1: 2}),
    ],
)
def test_replay_finds_the_largest_number_after_a_commit(rows: list[Transitions], most: dict[int, int]) -> None:
    result = replay([*rows, END], KEYS)
    assert {key: result.most[key] for key in most} == most


def test_replay_counts_starts_and_reports_missing_ends() -> None:
    assert replay([started("a", "b"), [("a", "ready")], started("a"), END], KEYS).starts == {"a": 2, "b": 1}
    with pytest.raises(AssertionError, match="no end of 1 running"):
        replay([started("a", "b"), [("b", "failed")]], KEYS)


def test_missing_row_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor counts transitions, or the order of commits is known separately."""
    one = [Transition(5, "a", "keyed", "running")]
    two = [Transition(5, "b", "keyed", "ready"), Transition(5, "a", "keyed", "ready")]
    feed = {1: one, 3: two}

    def read(after: str, limit: int) -> ChangePage:
        numbers = [number for number in feed if number > int(after)][:limit] if after else []
        cursor = str(numbers[-1]) if numbers else after or "0"
        return ChangePage([ChangeEntry(5, {}, feed[number]) for number in numbers], cursor)

    def ordered(*rows: list[Transition]) -> Callable[[], list[Transitions]]:
        return lambda: [[(each.uuid, each.state) for each in row] for row in rows]

    monkeypatch.setattr(commit_log, "_read", read)
    assert [len(row) for row in CommitLog().rows()] == [1, 2]
    assert [len(row) for row in CommitLog(ordered(two, one)).rows()] == [2, 1]
    for rows in ([one], [one, two, two]):
        with pytest.raises(AssertionError, match="order of commits"):
            CommitLog(ordered(*rows)).rows()
    del feed[1]
    with pytest.raises(AssertionError, match="2 transitions up to 3, after 0"):
        CommitLog().rows()


@pytest.mark.parametrize("server_store", SERVER_STORES, indirect=True)
def test_commit_log_detects_three_running_tasks_on_a_server(server_store: ServerStore) -> None:
    with task_app.app.override(store=server_store.url(30)):
        three_at_once(server_store.commits)


def test_commit_log_detects_three_running_tasks_in_a_file(store: str) -> None:
    three_at_once(CommitLog)


def three_at_once(follow: Callable[[], CommitLog]) -> None:
    """An operator has raised the limits to three."""
    sources = {"keyed": "keyed/1", "paired": None}
    call_store(
        task_app.app,
        lambda store: store.put_limits([Limit(name, cap=3, owner="operator") for name in ("keyed/*", "paired")]),
    )
    log = follow()
    tasks = [NewTask(new_uuid(), source, b"{}", lane=lane) for source, lane in sources.items() for _ in range(5)]
    group_of: dict[str, object] = {task.uuid: task.source for task in tasks}
    call_store(task_app.app, lambda store: store.add(tasks))
    call_store(task_app.app, lambda store: store.heartbeat("w", b"", 30_000))
    for number in range(1, 6):  # one of each per commit
        request = ClaimRequest(number, [SlotPool(1, {source: 1}) for source in sources])
        call_store(task_app.app, lambda store, request=request: store.turn("w", [], request))
    call_store(task_app.app, lambda store: store.close_session("w"))
    assert replay(log.rows(), group_of).most == {"keyed": 3, "paired": 3}


@pytest.mark.parametrize("server_store", ["postgres"], indirect=True)
def test_postgres_commit_log_has_the_order_of_commits(server_store: ServerStore) -> None:
    """The transaction that begins first commits last."""
    import psycopg

    url = server_store.url(30)
    with task_app.app.override(store=url):
        call_store(task_app.app, lambda store: store.tally())
        log = server_store.commits()
        plain = url.partition("?")[0]
        with psycopg.connect(plain) as first, psycopg.connect(plain) as second:
            early = task_app.work.options(connection=first).delay(1)
            late = task_app.work.options(connection=second).delay(2)
            second.commit()
            first.commit()
        assert [[uuid for uuid, _ in row] for row in log.rows()] == [[late.uuid], [early.uuid]]
