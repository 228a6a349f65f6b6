"""Which tasks are meant: ``--where`` and ``--tag`` of everything that takes filters."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Desk


def test_where_finds_by_argument_and_metadata(desk: Desk) -> None:
    send = desk.app.named("send")
    acme = send.options(metadata={"team": "billing"}, tags=["eu"]).delay(customer="acme", order={"id": 17}).uuid
    globex = send.delay(customer="globex", order={"id": 18}).uuid

    def found(*filters: str) -> list[str]:
        return [task["uuid"] for task in desk.json("task", "list", *filters)["tasks"]]

    assert found("--where", "customer=acme") == found("--where", "team=billing") == found("--tag", "eu") == [acme]
    assert found("--where", "order.id=18") == found("--where", "order.id:=18") == [globex]
    assert found("--where", "order.id=18", "--where", "customer=acme") == []
    assert found("--where", 'customer:="globex"', "--source", "send", "--state", "ready") == [globex]
    desk.add("send", customer="initech", order={"id": "17"})
    assert len(found("--where", "order.id=17")) == 2
    assert found("--where", "order.id:=17") == [acme]  # the number, and no text


def test_where_in_bulk(desk: Desk) -> None:
    uuids = [desk.add("greet", name=name) for name in ("ann", "bob", "ann")]
    assert desk.do("task", "cancel", "--where", "name=ann", "--dry-run") == "2 would be cancelled\n"
    assert desk.do("task", "cancel", "--where", "name=ann") == "cancelled 2 of 2\n"
    assert [desk.state(uuid) for uuid in uuids] == ["cancelled", "ready", "cancelled"]
    assert desk.do("task", "retry", "--where", "name=ann", "--state", "cancelled") == "retried 2 of 2\n"


def test_a_needle_is_found_however_old_it_is(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at a bounded number; the list goes on until it has what was asked for."""
    monkeypatch.setattr("onthedot.operations.task_queries.MAX_READS", 1)
    monkeypatch.setattr("onthedot.operations.task_queries.BATCH", 3)
    uuids = [desk.add("greet", name=str(number)) for number in range(10)]
    listed = desk.json("task", "list", "--where", "name=1")
    assert ([task["uuid"] for task in listed["tasks"]], listed["cursor"]) == ([uuids[1]], None)
    assert desk.do("task", "cancel", "--where", "name=1") == "cancelled 1 of 1\n"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("acme", "'acme': write customer=acme"),
        ("=acme", "'=acme': write customer=acme"),
        ("n:={", "is not JSON after :="),
    ],
)
def test_what_is_no_value(desk: Desk, given: str, words: str) -> None:
    desk.add("greet", name="ann")
    assert words in desk.do("task", "list", "--where", given, code=2)


def test_given_twice(desk: Desk) -> None:
    assert "name is given twice" in desk.do("task", "list", "--where", "name=a", "--where", "name=b", code=2)
