"""``onthedot source``: list, pause, resume and limit sources."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onthedot import AtMost, Rate
from onthedot.events import Event
from onthedot.stores.contract import Limit
from tests.support.waits import SOON, wait_until
from tests.unit.cli.conftest import Console


@pytest.fixture
def limited(console: Console) -> Console:
    """An app with limits, which a worker has stored."""

    def send(customer: str) -> None:
        pass

    def think(text: str) -> None:
        pass

    console.app.task(name="send", concurrency=4, rate_limit="100/m", limits=[AtMost(2, by="customer")])(send)
    console.app.task(name="think", limits=[Rate("5/s", name="openai")])(think)
    with console.app.background():
        pass
    return console


def sources(console: Console) -> dict[str, Any]:
    return {each["name"]: each for each in console.json("source", "list")["sources"]}


def test_source_list_shows_tasks_and_limits(limited: Console) -> None:
    limited.work(limited.add("greet", name="ann"), limited.add("fail", order=1))
    limited.add("greet", name="bob")
    limited.app.named("greet").options(after=3600).delay(name="cid")
    found = sources(limited)
    assert list(found) == ["fail", "greet", "send", "think", "@openai"]
    greet = found["greet"]
    assert [greet[state] for state in ("ready", "parked", "scheduled", "running", "succeeded")] == [1, 0, 1, 0, 1]
    assert (found["fail"]["failed"], greet["workers"], greet["paused"]) == (1, 0, None)
    assert [(each["name"], each["cap"], each["by"]) for each in found["send"]["limits"]] == [
        ("send", 4, "code"), ("send", None, "code"), ("send/*", 2, "code"),
    ]  # fmt: skip
    head, *rows = limited.do("source", "list").splitlines()
    assert head.split()[:3] == ["SOURCE", "READY", "PARKED"]
    assert re.fullmatch(r"greet +1 +0 +1 +0 +0 +1 +[\d.]+ ms +[\d.]+ ms +0", rows[1])
    assert rows[2].split() == ["send", *"000000", "-", "-", "0"]
    assert rows[3] == "  4 at once, 100/m, 2 at once per key"
    assert rows[5].split()[0] == "@openai"
    assert rows[6] == "  5/s"
    assert 0 <= greet["run_times"]["p50"] <= greet["run_times"]["p95"] < 60


def test_source_list_shows_workers(console: Console) -> None:
    with console.app.background():
        assert sources(console)["greet"]["workers"] == 1
    console.add("greet", name="ann")
    assert sources(console)["greet"]["workers"] == 0


def test_limit_of_the_operator_overrides_the_code(limited: Console) -> None:
    async def lower() -> None:
        await limited.app.runtime.store.put_limits([Limit("send", cap=1, owner="operator"), Limit("send/acme", cap=9)])

    limited.app.runtime.portal.run_sync(lambda _: lower())
    found = [(each["name"], each["cap"], each["by"]) for each in sources(limited)["send"]["limits"] if each["cap"]]
    assert found == [("send", 1, "operator"), ("send/*", 2, "code"), ("send/acme", 9, "code")]
    assert "1 at once (operator), 100/m, 2 at once per key, 9 at once for acme" in limited.do("source", "list")


def test_source_is_paused_and_resumed(console: Console) -> None:
    uuid = console.add("greet", name="ann")
    before = datetime.now(UTC) - timedelta(seconds=1)
    assert console.do("source", "pause", "greet", "--reason", "the bank is down") == (
        "paused greet: 1 ready task waits, 0 running tasks go on\n"
    )
    paused = sources(console)["greet"]["paused"]
    since = datetime.fromisoformat(paused["since"])
    assert (paused["key"], paused["reason"]) == (None, "the bank is down")
    assert before <= since <= datetime.now(UTC)
    assert "the bank is down" in console.do("source", "list")
    other = console.add("fail", order=1)
    console.work(other)
    assert console.state(uuid) == "ready"  # although a worker ran
    assert console.do("source", "resume", "greet") == "resumed greet: 1 ready\n"
    assert console.do("source", "resume", "greet") == "greet was not paused\n"
    assert console.json("source", "resume", "greet")["resumed"] is False
    console.work(uuid)
    assert console.state(uuid) == "succeeded"


def test_second_pause_changes_the_reason_and_not_the_time(console: Console) -> None:
    console.add("greet", name="ann")
    console.do("source", "pause", "greet", "--reason", "first")
    since = sources(console)["greet"]["paused"]["since"]
    wait_until(lambda: datetime.now(UTC) - datetime.fromisoformat(since) > timedelta(milliseconds=2))
    result = console.json("source", "pause", "greet", "--reason", "deploy (since 2001-01-01T00:00:00+00:00)")["source"]
    assert result["paused"]["since"] == since
    assert result["paused"]["reason"] == "deploy (since 2001-01-01T00:00:00+00:00)"  # a reason is never parsed


def test_key_is_paused_and_resumed(limited: Console) -> None:
    acme = limited.add("send", customer="a/b")
    globex = limited.add("send", customer="globex")
    assert limited.do("source", "pause", "send", "--key", "a/b", "--reason", "owes us") == (
        "paused send for a/b: 0 running tasks go on\n"
    )
    (pause,) = sources(limited)["send"]["paused_keys"]
    assert (pause["key"], pause["reason"]) == ("a/b", "owes us")
    limited.work(globex)
    assert limited.state(acme) in ("ready", "scheduled")
    result = limited.invoke("source", "resume", "send")
    assert result.stdout == "send was not paused\n"
    assert "still paused: a/b" in result.stderr
    assert limited.do("source", "resume", "send", "--key", "a/b").startswith("resumed send for a/b")
    limited.work(acme)


def test_pause_of_an_unknown_source_is_refused(console: Console) -> None:
    console.add("greet", name="ann")
    assert "no source 'gret' here; did you mean 'greet'?" in console.do("source", "pause", "gret", code=1)
    assert "no source 'x' here; there are: greet" in console.do("source", "resume", "x", code=1)
    assert "greet has no limits by key" in console.do("source", "pause", "greet", "--key", "acme", code=2)
    assert set(sources(console)) == {"greet"}
    console.do("source", "pause", "later", "--force", "--reason", "not before Monday")
    assert sources(console)["later"]["paused"]["reason"] == "not before Monday"


def test_limit_is_set_and_removed(limited: Console) -> None:
    assert limited.do("source", "limit", "send", "--at-once", "1") == "send: 1 at once, 100/m (burst 1.66667)\n"
    assert "1 at once (operator), 100/m" in limited.do("source", "list")
    assert limited.do("source", "limit", "send", "--rate", "5/s", "--burst", "2").endswith("1 at once, 5/s (burst 2)\n")
    assert limited.do("source", "limit", "send", "--at-once", "code", "--rate", "code").startswith(
        "send: 4 at once, 100/m"
    )
    assert limited.do("source", "limit", "@openai", "--at-once", "3") == "@openai: 3 at once, 5/s (burst 5)\n"
    result = limited.json("source", "limit", "send", "--key", "a/b", "--at-once", "7")["limit"]
    assert (result["cap"], result["changed"]) == (7, ["cap"])
    assert limited.do("source", "limit", "send", "--key", "*", "--at-once", "6") == "send per key: 6 at once\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["send"], "nothing to change"),
        (["send", "--at-once", "many"], "--at-once 'many' is no number"),
        (["send", "--at-once", "0"], "AtMost"),
        (["send", "--rate", "fast"], "rate 'fast' cannot be read"),
        (["think", "--burst", "3"], "think has no rate"),
        (["sned", "--at-once", "1"], "no source 'sned' here; did you mean 'send'?"),
        (["@opnai", "--at-once", "1"], "is no lane that tasks share"),
    ],
)
def test_invalid_limit_is_refused(limited: Console, arguments: list[str], message: str) -> None:
    unknown = arguments[0] == "sned"
    assert message in limited.do("source", "limit", *arguments, code=1 if unknown else 2)


def test_pause_by_the_app_is_shown(console: Console) -> None:
    console.add("greet", name="ann")
    console.app.sync.pause("greet", reason="deploy")
    assert sources(console)["greet"]["paused"]["reason"] == "deploy"
    console.app.sync.resume("greet")
    assert sources(console)["greet"]["paused"] is None


# -- freeze


def test_source_is_frozen_and_thawed(console: Console) -> None:
    console.add("greet", name="ann")
    assert console.do("source", "freeze", "greet") == "froze greet: it accepts no new tasks; 1 task not ended\n"
    assert console.do("source", "freeze", "greet") == "greet was frozen already\n"
    assert "frozen: it accepts no new tasks" in console.do("source", "list")
    refused = console.invoke("add", "greet", "name=bob", code=3)
    assert "onthedot source thaw greet" in refused.output
    doctor = console.invoke("doctor", code=1).output
    assert "greet accepts no new tasks; 1 task not ended" in doctor
    assert console.do("source", "thaw", "greet") == "thawed greet: it accepts tasks\n"
    assert console.do("source", "thaw", "greet") == "greet was not frozen\n"
    assert "no source 'gret'" in console.invoke("source", "freeze", "gret", code=1).stderr


def test_source_is_drained(console: Console) -> None:
    uuid = console.add("greet", name="ann")
    late = console.invoke("source", "drain", "greet", "--timeout", "0.1s", code=124)
    assert "greet: 1 task or event is left" in late.stderr
    console.work(uuid)
    assert console.do("source", "drain", "greet", "--outbox") == "drained greet: it is frozen, and no task is left\n"


def test_agent_is_drained_with_the_events_on_the_bus(console: Console) -> None:
    """It is frozen only when it has handled them: a frozen agent receives nothing."""
    may_end = threading.Event()
    seen: list[int] = []

    @console.app.agent("packer", consumes="Shop.Order.Placed")
    def pack(event: Event) -> None:
        assert may_end.wait(SOON)
        seen.append(event.payload["id"])

    def publish(number: int) -> None:
        console.app.sync.publish(Event("Shop.Order.Placed", {"id": number}, aggregate_id="1"))

    def is_frozen() -> bool:
        return bool(sources(console)["agent.packer"]["frozen"])

    def lags() -> list[int]:
        return [group["lag"] for group in console.json("outbox", "status")["outbox"]["groups"]]

    drain = ("source", "drain", "agent.packer", "--bus", "store", "--outbox")
    with console.app.background():
        for number in range(3):  # of one key: the agent handles one after another
            publish(number)
        wait_until(lambda: lags() == [3])
        late = console.invoke(*drain, "--timeout", "0.5s", code=124).stderr
        assert "agent.packer: 3 events are not handled after 0.5 s; it is not frozen" in late
        assert not is_frozen()
        may_end.set()
        assert console.do(*drain) == "drained agent.packer: it is frozen, and no task is left\n"
        assert (seen, is_frozen()) == ([0, 1, 2], True)
        publish(3)
        wait_until(lambda: lags() == [1])
        refused = console.invoke(*drain, code=1).stderr
        assert "agent.packer is frozen and receives none of 1 event on the bus: onthedot source thaw" in refused
        assert seen == [0, 1, 2]
        console.do("source", "thaw", "agent.packer")
        console.do(*drain)
        assert seen == [0, 1, 2, 3]


def test_drain_with_a_bus_is_for_agents_that_read_it(console: Console) -> None:
    @console.app.agent("packer", consumes="Shop.Order.Placed")
    async def pack(event: Event) -> None: ...

    console.add("greet", name="ann")
    assert "greet is no agent" in console.invoke("source", "drain", "greet", "--bus", "store", code=2).stderr
    console.do("source", "pause", "agent.packer", "--force")
    unknown = console.invoke("source", "drain", "agent.packer", "--bus", "store", code=1).stderr
    assert "the group shop.packer has read nothing from this store" in unknown
    refused = console.invoke("source", "drain", "agent.packer", "--bus", "kafka://127.0.0.1:1", code=1).stderr
    assert "Kafka at 127.0.0.1:1 does not answer" in refused
