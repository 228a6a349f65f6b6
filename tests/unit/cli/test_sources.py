"""``onthedot source``: what an operator sees of sources, and how one is stopped."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onthedot import AtMost, Rate
from onthedot.stores.contract import Limit
from tests.unit.cli.conftest import Desk


@pytest.fixture
def limited(desk: Desk) -> Desk:
    """With limits by code, known to the store since a worker has run."""

    def send(customer: str) -> None:
        pass

    def think(text: str) -> None:
        pass

    desk.app.task(name="send", concurrency=4, rate_limit="100/m", limits=[AtMost(2, by="customer")])(send)
    desk.app.task(name="think", limits=[Rate("5/s", name="openai")])(think)
    with desk.app.background():
        pass
    return desk


def sources(desk: Desk) -> dict[str, Any]:
    return {each["name"]: each for each in desk.json("source", "list")["sources"]}


def test_what_is_known_of_a_source(limited: Desk) -> None:
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
    assert rows[1].split() == ["greet", "1", "0", "1", "0", "0", "1", "0"]
    assert rows[2].split("  ")[-1].strip() == "4 at once, 100/m, 2 at once per key"
    assert rows[4].split()[0] == "@openai"
    assert rows[4].endswith("5/s")


def test_who_could_run_it(desk: Desk) -> None:
    with desk.app.background():
        assert sources(desk)["greet"]["workers"] == 1
    desk.add("greet", name="ann")
    assert sources(desk)["greet"]["workers"] == 0


def test_an_operator_s_limit_stands_before_code_s(limited: Desk) -> None:
    async def lower() -> None:
        await limited.app.runtime.store.put_limits([Limit("send", cap=1, owner="operator"), Limit("send/acme", cap=9)])

    limited.app.runtime.portal.run_sync(lambda _: lower())
    found = [(each["name"], each["cap"], each["by"]) for each in sources(limited)["send"]["limits"] if each["cap"]]
    assert found == [("send", 1, "operator"), ("send/*", 2, "code"), ("send/acme", 9, "code")]
    assert "1 at once (operator), 100/m, 2 at once per key, 9 at once for acme" in limited.do("source", "list")


def test_pause_and_resume(desk: Desk) -> None:
    uuid = desk.add("greet", name="ann")
    before = datetime.now(UTC) - timedelta(seconds=1)
    assert desk.do("source", "pause", "greet", "--reason", "the bank is down") == (
        "paused greet: 1 ready ones wait, 0 running ones go on\n"
    )
    paused = sources(desk)["greet"]["paused"]
    since = datetime.fromisoformat(paused["since"])
    assert (paused["key"], paused["reason"]) == (None, "the bank is down")
    assert before <= since <= datetime.now(UTC)
    assert "the bank is down" in desk.do("source", "list")
    other = desk.add("fail", order=1)
    desk.work(other)
    assert desk.state(uuid) == "ready"  # although a worker was there
    assert desk.do("source", "resume", "greet") == "resumed greet: 1 ready\n"
    assert desk.do("source", "resume", "greet") == "greet was not paused\n"
    assert desk.json("source", "resume", "greet")["resumed"] is False
    desk.work(uuid)
    assert desk.state(uuid) == "succeeded"


def test_a_second_pause_changes_the_reason_and_not_the_time(desk: Desk) -> None:
    desk.add("greet", name="ann")
    desk.do("source", "pause", "greet", "--reason", "first")
    since = sources(desk)["greet"]["paused"]["since"]
    asyncio.run(asyncio.sleep(1.1))  # the time is kept in seconds
    told = desk.json("source", "pause", "greet", "--reason", "deploy (since 2001-01-01T00:00:00+00:00)")["source"]
    assert told["paused"]["since"] == since
    assert told["paused"]["reason"] == "deploy (since 2001-01-01T00:00:00+00:00)"  # what somebody writes is not read


def test_one_key(limited: Desk) -> None:
    acme = limited.add("send", customer="a/b")
    globex = limited.add("send", customer="globex")
    assert limited.do("source", "pause", "send", "--key", "a/b", "--reason", "owes us") == (
        "paused send for a/b: 0 running ones go on\n"
    )
    (pause,) = sources(limited)["send"]["paused_keys"]
    assert (pause["key"], pause["reason"]) == ("a/b", "owes us")
    limited.work(globex)
    assert limited.state(acme) in ("ready", "scheduled")
    told = limited.invoke("source", "resume", "send")
    assert told.stdout == "send was not paused\n"
    assert "still paused: a/b" in told.stderr
    assert limited.do("source", "resume", "send", "--key", "a/b").startswith("resumed send for a/b")
    limited.work(acme)


def test_a_pause_that_would_hold_nothing_is_refused(desk: Desk) -> None:
    desk.add("greet", name="ann")
    assert "no source 'gret' here; did you mean 'greet'?" in desk.do("source", "pause", "gret", code=1)
    assert "no source 'x' here; there are: greet" in desk.do("source", "resume", "x", code=1)
    assert "greet has no limits by key" in desk.do("source", "pause", "greet", "--key", "acme", code=2)
    assert set(sources(desk)) == {"greet"}
    desk.do("source", "pause", "later", "--force", "--reason", "not before Monday")
    assert sources(desk)["later"]["paused"]["reason"] == "not before Monday"


def test_a_limit_is_set_and_given_back(limited: Desk) -> None:
    assert limited.do("source", "limit", "send", "--at-once", "1") == "send: 1 at once, 100/m (burst 1.66667)\n"
    assert "1 at once (operator), 100/m" in limited.do("source", "list")
    assert limited.do("source", "limit", "send", "--rate", "5/s", "--burst", "2").endswith("1 at once, 5/s (burst 2)\n")
    assert limited.do("source", "limit", "send", "--at-once", "code", "--rate", "code").startswith(
        "send: 4 at once, 100/m"
    )
    assert limited.do("source", "limit", "@openai", "--at-once", "3") == "@openai: 3 at once, 5/s (burst 5)\n"
    told = limited.json("source", "limit", "send", "--key", "a/b", "--at-once", "7")["limit"]
    assert (told["cap"], told["changed"]) == (7, ["cap"])
    assert limited.do("source", "limit", "send", "--key", "*", "--at-once", "6") == "send per key: 6 at once\n"


@pytest.mark.parametrize(
    ("words", "says"),
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
def test_a_limit_that_cannot_be(limited: Desk, words: list[str], says: str) -> None:
    unknown = words[0] == "sned"
    assert says in limited.do("source", "limit", *words, code=1 if unknown else 2)


def test_app_pause_is_the_same(desk: Desk) -> None:
    desk.add("greet", name="ann")
    desk.app.sync.pause("greet", reason="deploy")
    assert sources(desk)["greet"]["paused"]["reason"] == "deploy"
    desk.app.sync.resume("greet")
    assert sources(desk)["greet"]["paused"] is None
