"""The user of ``onthedot schema print --role`` can do all that a worker does, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

import pytest
import redis
from click.testing import CliRunner

from onthedot import App, AtMost, Rate, current_task
from onthedot.cli import main
from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreRefused
from onthedot.stores.contract import ClaimRequest, HandoffOffer, Limit, NewTask, State
from onthedot.stores.redis import RedisStore
from onthedot.stores.redis.acl import commands
from tests.support.services import valkey
from tests.unit.stores.redis.test_keys import _life

RARE = {"sscan", "zremrangebyrank"}  # only for what is large, or old


def printed(*args: str) -> str:
    result = CliRunner().invoke(main, ["schema", "print", *args])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def limited(server: valkey.Server) -> str:
    """The URL of a user with the rights for the app shop."""
    command = printed("--role", "shop", "-n", "shop", "--store", server.url).replace("PASSWORD", "secret").split()
    assert server.ask(*command) == b"+OK"
    return server.url.replace("//", "//shop:secret@")


@pytest.fixture
def client(limited: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(limited) as client:
        yield client


def refused(server: valkey.Server) -> set[str]:
    """Entries of the ACL log, except that the driver may not set its name."""
    with redis.Redis.from_url(server.url) as client:
        return {entry["object"] for entry in client.acl_log()} - {"client|setinfo", "client"}  # 6.2 names no parts


async def test_limited_user_can_do_all_that_a_worker_does(server: valkey.Server, limited: str) -> None:
    clock = ManualClock()
    store = RedisStore(limited, clock, "shop")
    await store.open()
    with redis.Redis.from_url(server.url) as admin:
        await _life(store, clock, admin, lambda: None)
    await store.schedules()
    await store.find({}, None, 10)
    await store.find({"uuid": "a31e"}, None, 10)
    for state in get_args(State):
        await store.find({"state": state}, None, 10)
    await store.put_limits([Limit("a/*", cap=0)])
    await store.add([NewTask(name, "a", b"", lane="a/k") for name in "xy"])
    await store.turn("w", [], ClaimRequest(21, []))
    assert await store.position("y")
    assert await store.read_series("minutes", 0, 2, 10, newest_first=True)
    assert (await store.changes("0", 10)).entries
    await _hand_out(store)
    await store.close()
    app = App("shop", store=f"{limited}/1", stop_timeout=0)

    @app.task(max_retries=1, backoff=[0], limits=[Rate("100/s", by="to"), AtMost(1, by="to")], unique=True)
    async def send(to: str) -> str:
        if current_task().attempt == 1:
            raise OSError("again")
        return to

    async with app.running():
        handles = [await send.options(after=0.01).enqueue(str(number)) for number in range(5)]
        assert [await handle.result(timeout=20) for handle in handles] == [str(number) for number in range(5)]
        assert len(await app.find(state="succeeded")) == 5
    assert refused(server) == set()


async def _hand_out(store: RedisStore) -> None:
    hints = store.hints("idle")
    await anext(hints)
    await store.heartbeat("idle", b"", 10**6)
    await store.turn("idle", [], ClaimRequest(1, [], offer=HandoffOffer({"d": 1}, 1000)))
    await store.add([NewTask("z", "d", b"")])
    assert (await store.get(["z"]))[0].state == "running"  # type: ignore[union-attr]
    await hints.aclose()


async def test_every_granted_command_is_used(server: valkey.Server, limited: str) -> None:
    await test_limited_user_can_do_all_that_a_worker_does(server, limited)
    used = set(re.findall(r"cmdstat_([a-z|]+):", server.text("INFO", "commandstats")))
    granted = {name.partition("|")[0] if "client" in used else name for name in commands()}
    assert granted - used <= RARE


@pytest.mark.parametrize(
    "command",
    [
        ("GET", "secrets"), ("SET", "onthedot:{other}:sequences", "1"), ("HGET", "onthedot:{other}:sequences", "seq"),
        ("EVAL", "return redis.call('HGET', 'secrets', 'a')", "0"), ("KEYS", "*"), ("SCAN", "0"), ("FLUSHALL",),
        ("CONFIG", "GET", "*"), ("ACL", "LIST"), ("CLIENT", "LIST"), ("CLIENT", "KILL", "TYPE", "normal"), ("MONITOR",),
        ("SCRIPT", "FLUSH"), ("SHUTDOWN",), ("SUBSCRIBE", "onthedot:{other}:hints"),
        ("PUBLISH", "news", "x"),
    ],
)  # fmt: skip
def test_limited_user_is_refused_other_commands(client: redis.Redis, command: tuple[str, ...]) -> None:
    with pytest.raises(redis.ResponseError, match=r"(?i)permissions|can't access"):
        client.execute_command(*command)


async def test_limited_user_is_refused_another_app(limited: str) -> None:
    store = RedisStore(limited, name="other")
    await store.open()
    try:
        with pytest.raises(StoreRefused, match="schema print --role"):
            await store.tally()
    finally:
        await store.close()


def test_limited_user_must_name_the_app_on_the_command_line(limited: str) -> None:
    """A user that may list keys would see those of all programs."""
    run = CliRunner()
    assert "name one by -n" in run.invoke(main, ["task", "list", "--store", limited]).output
    assert run.invoke(main, ["task", "list", "--store", limited, "-n", "shop"]).exit_code == 0


def test_printed_acl_rule() -> None:
    every = printed("--role", "all", "--store", "redis://host")
    assert every.startswith("ACL SETUSER all reset on >PASSWORD resetchannels ~onthedot:* &onthedot:* -@all +auth ")
    assert "+cluster|slots" in printed("--role", "shop", "--store", "redis+cluster://host")
    for args, message in (("--role x;y --store redis://host", "no name"), ("--role x --store memory://", "no users")):
        result = CliRunner().invoke(main, ["schema", "print", *args.split()])
        assert (result.exit_code, message in result.output) == (2, True)
