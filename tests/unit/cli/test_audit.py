"""``onthedot audit``, and that commands which change something have an entry in it."""

from __future__ import annotations

from typing import Any

from onthedot.operations.audit import system_user
from tests.unit.cli.conftest import Console


def rows(console: Console, *options: str) -> list[tuple[Any, ...]]:
    """The oldest first."""
    found = console.json("audit", *options)["audit"]
    return [(each["action"], each["target"], each["found"], each["changed"], each["reason"]) for each in found[::-1]]


def test_changes_on_the_command_line_are_recorded(console: Console) -> None:
    uuids = [console.add("greet", name="ann"), console.add("greet", name="bob")]
    assert "no operator has changed anything" in console.do("audit")
    console.do("source", "pause", "greet", "--reason", "mail server is down")
    console.do("source", "resume", "greet")
    console.do("source", "limit", "greet", "--at-once", "2")
    console.do("source", "freeze", "greet")
    console.do("source", "thaw", "greet")
    console.do("task", "cancel", "--source", "greet", "-y")
    console.do("task", "retry", uuids[0])
    console.do("signal", "send", "approved")
    console.do("outbox", "pause", "--reason", "vendor")
    console.do("outbox", "resume")
    assert rows(console) == [
        ("pause", "greet", 1, 1, "mail server is down"),
        ("resume", "greet", 1, 1, ""),
        ("limit", "greet", 1, 1, ""),
        ("freeze", "greet", 1, 1, ""),
        ("thaw", "greet", 1, 1, ""),
        ("cancel tasks", "source:greet", 2, 2, ""),
        ("retry tasks", uuids[0], 1, 1, ""),
        ("signal", "approved", 1, 1, ""),
        ("pause outbox", "all topics", 1, 1, "vendor"),
        ("resume outbox", "all topics", 1, 1, ""),
    ]
    assert {(each["user"], each["via"], each["state"]) for each in console.json("audit")["audit"]} == {
        (system_user(), "cli", "done")
    }
    assert rows(console, "--action", "pause", "--user", system_user(), "--since", "1h") == rows(console)[:1]
    assert rows(console, "--user", "nobody") == []
    assert "no such change" in console.do("audit", "--user", "nobody")
    shown = console.do("audit", "--limit", "3")
    assert [word in shown for word in ("resume outbox", "vendor", "signal", "retry tasks")] == [True, True, True, False]
    assert "there may be more: --limit 30" in shown
