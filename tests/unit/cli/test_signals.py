"""``onthedot signal``, and the steps that ``onthedot task show`` lists."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from onthedot import App, current_task
from onthedot.cli import main
from tests.support.waits import SOON, wait_until
from tests.unit.cli.conftest import Console


@pytest.fixture
def waiting(console: Console) -> str:
    """The uuid of a task that waits for a signal."""
    declare(console.app)
    with console.app.background():
        handle = console.app.named("order").delay()
        wait_until(lambda: handle.state() == "waiting")
    return handle.uuid


def declare(app: App) -> None:
    @app.task
    async def order() -> object:
        ctx = current_task()
        await ctx.step("charge", price)
        return await ctx.wait_for("approved", timeout=3600)


def price() -> int:
    return 7


def send(console: Console, *arguments: str) -> str:
    return console.do("signal", "send", "approved", *arguments, "--id", "evt-1")


def test_signal_is_sent_once_and_taken(console: Console, waiting: str) -> None:
    sent = console.invoke("signal", "send", "approved", "by=ann", "level:=3", "--id", "evt-1", "--to", waiting[-8:])
    assert sent.stdout == f"sent: order {waiting[-10:]} waits for it\n"
    assert sent.stderr == "no worker is alive to run it: onthedot worker APP starts one\n"
    assert send(console, "by=bob", "--to", waiting) == "kept already\n"
    with console.app.background():
        assert console.app.handle(waiting).result(SOON) == {"by": "ann", "level": 3}


def test_signal_send_names_the_tasks_that_wait_for_it(console: Console, waiting: str) -> None:
    def answer(*arguments: str) -> tuple[str, str]:
        result = console.invoke("signal", "send", *arguments)
        return result.stdout, result.stderr

    who = f"order {waiting[-10:]}"
    assert answer("aproved") == (
        "sent and kept\n",
        "no task waits for 'aproved' now: the next that does takes it; did you mean 'approved'?\n",
    )
    assert answer("other")[1].endswith("takes it; tasks wait for: approved\n")
    assert answer("other", "--to", waiting)[1] == f"{who} waits for 'approved', and not for 'other'\n"
    with console.app.background():
        others = [console.app.named("order").delay() for _ in range(7)]
        wait_until(lambda: all(each.state() == "waiting" for each in others))
    out, _ = answer("approved")
    assert out.startswith("sent: 8 tasks wait for it: order ")
    assert out.endswith(", …\n")
    assert answer("approved")[1].startswith("no task waits for 'approved' now")  # the first one ends their waits
    later = console.app.named("order").options(after=3600).delay()
    short = later.uuid[-10:]
    assert answer("approved", "--to", later.uuid)[1] == (
        f"order {short} does not wait for a signal now (scheduled): it takes this one when it does\n"
    )
    console.app.handle(later.uuid).cancel()
    assert f"order {short} has ended (cancelled): nothing takes the signal" in answer("approved", "--to", short)[1]


def test_signal_without_words_is_null(console: Console, waiting: str) -> None:
    answer = console.json("signal", "send", "approved", "--keep", "7d")
    assert answer == {"name": "approved", "sent": True, "takers": [waiting]}
    (found,) = console.json("signal", "list", "approved")["signals"]
    assert found["payload"] is None
    with console.app.background():
        assert console.app.handle(waiting).result(SOON) is None


@pytest.mark.parametrize("payload", ["ann", 3, ["a", None], {"by": "ann"}, None])
def test_payload_is_any_json_value(console: Console, waiting: str, payload: object) -> None:
    console.do("signal", "send", "approved", "--payload", json.dumps(payload))
    with console.app.background():
        assert console.app.handle(waiting).result(SOON) == payload


def test_signal_list_shows_what_is_kept(console: Console, waiting: str) -> None:
    console.do("signal", "send", "approved", "by=ann", "--id", "evt-1")
    console.do("signal", "send", "approved", "by=bob", "--id", "evt-2", "--to", waiting)
    head, row = console.do("signal", "list", "approved").splitlines()
    assert head.split() == ["ID", "SENT", "PAYLOAD"]
    assert row.startswith("evt-1")
    assert row.endswith('{"by":"ann"}')
    (found,) = console.json("signal", "list", "approved", "--to", waiting)["signals"]
    assert (found["id"], found["payload"]) == ("evt-2", {"by": "bob"})


def test_signal_list_shows_waiting_tasks(console: Console, waiting: str) -> None:
    for arguments in ((), ("--waiting",), ("approved", "--waiting")):
        (found,) = console.json("signal", "list", *arguments)["waiting"]
        assert (found["uuid"], found["names"]) == (waiting, ["approved"])
    assert console.json("signal", "list", "refused", "--waiting")["waiting"] == []
    head, row = console.do("signal", "list").splitlines()
    assert head.split() == ["ID", "SOURCE", "SIGNAL", "SINCE", "UNTIL"]
    assert "approved" in row


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("",), "the name of a signal"),
        (("approved", "ann"), "'ann' is no argument; write name=text or name:=json; or --payload JSON"),
        (("approved", "--payload", "ann"), "'ann' is not JSON"),
        (("approved", "by=ann", "--payload", "1"), "--payload is the whole payload"),
        (("approved", "--keep", "1h"), "keep must be 24 hours or more"),
        (("approved", "--keep", "soon"), "'soon' is no time"),
        (("approved", "--to", "nothing"), "no task nothing"),
    ],
)
def test_bad_signal_is_one_line(console: Console, waiting: str, arguments: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(main, ["signal", "send", *arguments, "--store", console.url])
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    assert problem in result.output


def test_source_list_counts_waiting_tasks(console: Console, waiting: str) -> None:
    assert "1 task waits for a signal or other tasks" in console.do("source", "list")
    (found,) = [each for each in console.json("source", "list")["sources"] if each["name"] == "order"]
    assert found["waiting"] == 1


def test_task_show_lists_steps_and_the_current_wait(console: Console, waiting: str) -> None:
    steps = console.json("task", "show", waiting)["steps"]
    assert [step["name"] for step in steps] == ["charge#1", "#until:approved#1"]
    assert steps[0]["type"] == "int"
    text = console.do("task", "show", waiting)
    assert "steps:" in text
    assert "charge#1" in text
    assert "since" in text
    assert "until" in text
    assert "waits for the signal" in console.do("task", "explain", waiting)
