"""The filters ``--where`` and ``--tag`` of all commands that take filters."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Console


def test_where_finds_tasks_by_argument_and_metadata(console: Console) -> None:
    send = console.app.named("send")
    acme = send.options(metadata={"team": "billing"}, tags=["eu"]).delay(customer="acme", order={"id": 17}).uuid
    globex = send.delay(customer="globex", order={"id": 18}).uuid

    def found(*filters: str) -> list[str]:
        return [task["uuid"] for task in console.json("task", "list", *filters)["tasks"]]

    assert found("--where", "customer=acme") == found("--where", "team=billing") == found("--tag", "eu") == [acme]
    assert found("--where", "order.id=18") == found("--where", "order.id:=18") == [globex]
    assert found("--where", "order.id=18", "--where", "customer=acme") == []
    assert found("--where", 'customer:="globex"', "--source", "send", "--state", "ready") == [globex]
    console.add("send", customer="initech", order={"id": "17"})
    assert len(found("--where", "order.id=17")) == 2
    assert found("--where", "order.id:=17") == [acme]  # the number only


def test_filters_in_one_text_find_the_same_as_options(console: Console) -> None:
    send = console.app.named("send")
    acme = send.delay(customer="acme", order={"id": 17}).uuid
    send.delay(customer="globex", order={"id": 18})

    def found(*filters: str) -> list[str]:
        return [task["uuid"] for task in console.json("task", "list", *filters)["tasks"]]

    assert found("source:send customer:acme") == found("order.id:=17 since:1h") == found(acme) == [acme]
    assert found("customer:acme", "--source", "send", "--state", "ready") == [acme]


def test_where_selects_tasks_of_a_bulk_action(console: Console) -> None:
    uuids = [console.add("greet", name=name) for name in ("ann", "bob", "ann")]
    assert console.do("task", "cancel", "--where", "name=ann", "--dry-run") == "2 would be cancelled\n"
    assert console.do("task", "cancel", "--where", "name=ann") == "cancelled 2 of 2\n"
    assert [console.state(uuid) for uuid in uuids] == ["cancelled", "ready", "cancelled"]
    assert console.do("task", "retry", "--where", "name=ann", "--state", "cancelled") == "retried 2 of 2\n"


def test_list_reads_on_until_it_has_found_enough(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page reads a bounded number of tasks; the list reads on until it has enough."""
    monkeypatch.setattr("onthedot.operations.task_queries.MAX_READS", 1)
    monkeypatch.setattr("onthedot.operations.task_queries.BATCH", 3)
    uuids = [console.add("greet", name=str(number)) for number in range(10)]
    listed = console.json("task", "list", "--where", "name=1")
    assert ([task["uuid"] for task in listed["tasks"]], listed["cursor"]) == ([uuids[1]], None)
    assert console.do("task", "cancel", "--where", "name=1") == "cancelled 1 of 1\n"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("acme", "'acme': write customer=acme"),
        ("=acme", "'=acme': write customer=acme"),
        ("n:={", "is not JSON after :="),
    ],
)
def test_invalid_condition_is_refused(console: Console, given: str, text: str) -> None:
    console.add("greet", name="ann")
    assert text in console.do("task", "list", "--where", given, code=2)


def test_condition_given_twice_is_refused(console: Console) -> None:
    assert "name is given twice" in console.do("task", "list", "--where", "name=a", "--where", "name=b", code=2)
