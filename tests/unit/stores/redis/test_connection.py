"""A shared connection: replies match requests, and pending calls end when it breaks."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from onthedot.errors import StoreBusy, StoreRefused, StoreUnavailable
from onthedot.stores.redis import RedisStore, client, subscription
from onthedot.stores.redis.client import RedisClient
from onthedot.stores.redis.connection import RedisConnection
from onthedot.stores.redis.errors import may_pass
from onthedot.stores.redis.server_clock import ServerClock
from onthedot.stores.redis.url import parse_url
from tests.support.services import valkey
from tests.support.waits import SOON, until

pytestmark = pytest.mark.fault

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def to(url: str) -> AsyncIterator[Any]:
    made = RedisClient(parse_url(url))
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def fake_server(*talks: Talk) -> AsyncIterator[str]:
    """A fake server: the first connection is handled by the first handler, and so on."""
    left = iter(talks)

    async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"onthedot\r\n")  # the greeting, to its end
        writer.write(b"+OK\r\n")
        await next(left)(reader, writer)
        writer.close()

    listening = await asyncio.start_server(come, "127.0.0.1", 0)
    async with listening:
        yield f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@contextmanager
def stopped(server: valkey.Server) -> Any:
    """Neither reads nor answers."""
    pid = server.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_replies_stay_matched_after_a_cancelled_call(server: valkey.Server) -> None:
    chance = random.Random(1)
    async with to(server.url) as here:
        assert await here.command("ECHO", "first") == b"first"
        for _ in range(20):
            calls = {number: asyncio.create_task(here.command("ECHO", str(number))) for number in range(100)}
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            for number in chance.sample(range(100), 50):
                calls.pop(number).cancel()
            answers = await asyncio.gather(*calls.values())
            assert answers == [str(number).encode() for number in calls]
        assert len(valkey.connections(server.url)) == 1


@pytest.mark.parametrize("command", [b"PUBLISH news x", b"EVAL \"redis.call('PUBLISH', 'news', 'x')\" 0"])
def test_after_another_command_the_subscriber_gets_its_message_before_the_caller_its_reply(
    server: valkey.Server, command: bytes
) -> None:
    """The reason for `request_after_time`: when the reply has come, so has the message."""
    with (
        socket.create_connection(("127.0.0.1", server.port)) as here,
        socket.create_connection(("127.0.0.1", server.port)) as subscriber,
    ):
        subscriber.sendall(b"SUBSCRIBE news\r\n")
        assert subscriber.recv(100).startswith(b"*3")
        subscriber.setblocking(False)
        for _ in range(500):
            here.sendall(b"TIME\r\n" + command + b"\r\n")
            assert here.recv(100).startswith(b"*2")
            assert subscriber.recv(100).endswith(b"x\r\n")


async def test_replies_after_a_time_stay_matched(server: valkey.Server) -> None:
    async with to(server.url) as here:
        await here.command("PING")
        clock = ServerClock()
        requests = [here.connections.request("ECHO", str(n), clock=clock if n % 3 else None) for n in range(100)]
        found = await asyncio.gather(*requests)
        assert clock.earliest_now() == pytest.approx(time.time() * 1000, abs=1000)
        assert found == [str(number).encode() for number in range(100)]


async def test_command_that_cannot_be_packed_takes_no_reply(server: valkey.Server) -> None:
    async with to(server.url) as here:
        with pytest.raises(TypeError):
            await here.command("ECHO", object())
        assert await here.command("ECHO", "next") == b"next"


async def test_blocked_event_loop_reads_before_it_times_out() -> None:
    here, peer = socket.socketpair()
    with peer:
        _, connection = await asyncio.get_running_loop().create_connection(lambda: RedisConnection(0.05), sock=here)
        answer = connection.request("PING")
        time.sleep(0.1)  # noqa: ASYNC251 - the very thing
        peer.sendall(b"+PONG\r\n")
        assert await answer == b"PONG"
        assert isinstance(await connection.request("PING"), TimeoutError)
        await connection.closed


async def test_close_waits_for_outstanding_replies(server: valkey.Server) -> None:
    async with to(server.url) as here:
        await here.command("PING")
        calls = [asyncio.create_task(here.command("ECHO", str(number))) for number in range(3)]
        await until(lambda: here.connections.shared.has_pending)
    assert await asyncio.gather(*calls) == [b"0", b"1", b"2"]
    with pytest.raises(StoreUnavailable, match="not open"):
        await here.command("PING")
    await until(lambda: valkey.connections(server.url) == [])


async def test_concurrent_first_calls_share_one_connection(server: valkey.Server) -> None:
    """Also when the first caller, which opens it, is cancelled."""
    async with to(server.url) as here:
        first, *rest = (asyncio.create_task(here.command("ECHO", str(number))) for number in range(40))
        await asyncio.sleep(0)
        first.cancel()
        assert await asyncio.gather(*rest) == [str(number).encode() for number in range(1, 40)]
        assert len(valkey.connections(server.url)) == 1
        assert server.text("CLIENT", "LIST").count("name=onthedot") == 1


async def test_call_with_a_truncated_reply_is_repeated() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"two\r\n")
        writer.write(b"$3\r\none\r\n$3\r\nt")
        await writer.drain()

    async def full_reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"two\r\n")
        writer.write(b"$3\r\ntwo\r\n")
        await reader.read()

    async with fake_server(half, full_reply) as url, to(url) as here:
        assert await asyncio.gather(here.command("ECHO", "one"), here.command("ECHO", "two")) == [b"one", b"two"]


async def test_pending_calls_get_a_repeatable_error_when_the_connection_breaks(server: valkey.Server) -> None:
    host, port = parse_url(server.url).hosts[0]
    _, connection = await asyncio.get_running_loop().create_connection(lambda: RedisConnection(60), host, port)
    waiting = [connection.request("BLPOP", "nothing", 0) for _ in range(3)]
    await until(lambda: "cmd=blpop" in server.text("CLIENT", "LIST"))
    server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    errors = await asyncio.gather(*waiting, connection.request("PING"))
    assert [may_pass(each) for each in errors] == [True] * 4
    assert isinstance(await connection.request("PING"), ConnectionError), "later requests, too"
    await connection.closed


async def test_missing_reply_closes_all_idle_connections(
    server: valkey.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscription, too, where a loss would go unnoticed; the next call opens a new connection."""
    monkeypatch.setattr(client, "PATIENCE", 1.0)
    async with to(server.url) as here:
        stream = await here.listen("x", "onthedot:{x}:hints")
        await here.command("PING")
        with stopped(server):
            with pytest.raises(StoreUnavailable, match=r"no answer within 1 s"):
                await here.command("PING")
            with pytest.raises(ConnectionError, match="another connection went silent"):
                await stream.message()
        monkeypatch.setattr(client, "PATIENCE", SOON)
        assert await here.command("PING") == b"PONG"


async def test_callers_wait_while_the_server_does_not_read(
    server: valkey.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests do not pile up in the client."""
    monkeypatch.setattr(client, "PATIENCE", SOON)
    big = "x" * 200_000
    number = 100
    async with to(server.url) as here:
        await here.command("PING")
        connection = here.connections.shared
        with stopped(server):
            calls = [asyncio.create_task(here.command("ECHO", f"{each}{big}")) for each in range(number)]
            await until(lambda: not connection.ready)
            for _ in range(10):
                await asyncio.sleep(0)
            assert connection.pending_count < number
            assert connection.unsent_bytes < 3 * len(big)
        answers = await asyncio.gather(*calls)
        assert [answer.removesuffix(big.encode()) for answer in answers] == [b"%d" % each for each in range(number)]
        assert here.connections.shared is connection


@pytest.mark.parametrize(
    ("login", "message"),
    [
        ("", "NOAUTH .*user or password is wrong, or missing: redis://user:password@host"),
        (":wrong@", "WRONGPASS .*user or password is wrong"),
        ("default:wrong@", "WRONGPASS .*user or password is wrong"),
        ("nobody:secret@", "WRONGPASS .*user or password is wrong"),
    ],
)
async def test_refused_login_names_the_reason(server: valkey.Server, login: str, message: str) -> None:
    server.ask("CONFIG", "SET", "requirepass", "secret")
    with pytest.raises(StoreRefused, match=message):
        await RedisStore(server.url.replace("//", f"//{login}")).open()
    async with to(server.url.replace("//", "//:secret@") + "/3") as here:
        assert b"db=3" in await here.command("CLIENT", "INFO")
        await here.command("CONFIG", "SET", "requirepass", "")
    with pytest.raises(StoreRefused, match=r"without any password.*user or password is wrong"):
        await RedisStore(server.url.replace("//", "//:secret@")).open()


async def test_connection_beyond_maxclients_is_refused(server: valkey.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE", 1.0)
    async with to(server.url) as here:
        await here.command("CONFIG", "SET", "maxclients", "1")
        with pytest.raises(StoreBusy, match="raise maxclients"):
            await RedisStore(server.url).open()
        await here.command("CONFIG", "SET", "maxclients", "100")


async def test_connection_to_a_demoted_master_is_closed(server: valkey.Server) -> None:
    """The next call connects again, to the current master."""
    async with to(server.url) as here:
        await here.command("SET", "onthedot:x", "1")
        before = here.connections.shared
        server.ask("REPLICAOF", "127.0.0.1", "1")
        writing = asyncio.create_task(here.command("SET", "onthedot:x", "2"))
        await until(lambda: before.close_reason is not None)
        server.ask("REPLICAOF", "NO", "ONE")
        assert await writing == b"OK"


async def test_silent_subscription_is_pinged(server: valkey.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "QUIET_TIME", 0.02)
    monkeypatch.setattr(subscription, "PING_TIMEOUT", 1.0)
    async with to(server.url) as here:
        stream = await here.listen("x", "onthedot:{x}:hints", "onthedot:{x}:to:me")
        before = pings(server)
        await until(lambda: pings(server) >= before + 2)
        server.ask("PUBLISH", "onthedot:{x}:to:me", "news")
        assert await stream.message() == (b"onthedot:{x}:to:me", b"news")
        with stopped(server), pytest.raises(TimeoutError, match="hints do not come any more"):
            await stream.message()


def pings(server: valkey.Server) -> int:
    lines = server.text("INFO", "commandstats").splitlines()
    stat = next(text for text in lines if text.startswith("cmdstat_ping:"))  # of its start, at least
    return int(stat.partition("calls=")[2].partition(",")[0])


async def test_forbidden_subscription_is_refused_at_once(server: valkey.Server) -> None:
    server.ask("ACL", "SETUSER", "deaf", "on", ">secret", "~onthedot:*", "resetchannels", "+@all")
    async with to(server.url.replace("//", "//deaf:secret@")) as here:
        with pytest.raises(StoreRefused, match="NOPERM"):
            await here.listen("x", "onthedot:{x}:hints", "onthedot:{x}:to:me")


async def test_server_of_another_kind_is_refused_at_once() -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with fake_server(other) as url:
        with pytest.raises(StoreUnavailable, match=r"rotocol error.*is the address right"):
            await RedisStore(url).open()
