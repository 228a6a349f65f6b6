"""A connection that many share: whose answer is whose, and what becomes of those who wait when it breaks."""

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
async def somebody(*talks: Talk) -> AsyncIterator[str]:
    """Who is no server: the first who comes is talked to in the first way, and so on."""
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
    """It reads nothing, and answers nothing."""
    pid = server.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_who_gives_up_leaves_its_answer_to_nobody(server: valkey.Server) -> None:
    chance = random.Random(1)
    async with to(server.url) as here:
        assert await here.command("ECHO", "first") == b"first"
        for _ in range(20):
            asked = {number: asyncio.create_task(here.command("ECHO", str(number))) for number in range(100)}
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            for number in chance.sample(range(100), 50):
                asked.pop(number).cancel()
            answers = await asyncio.gather(*asked.values())
            assert answers == [str(number).encode() for number in asked]
        assert len(valkey.connections(server.url)) == 1


@pytest.mark.parametrize("asked", [b"PUBLISH news x", b"EVAL \"redis.call('PUBLISH', 'news', 'x')\" 0"])
def test_behind_a_ping_whom_a_call_tells_something_hears_it_first(server: valkey.Server, asked: bytes) -> None:
    """Why `ask_behind` is as it is: when the answer is there, so is the message."""
    with (
        socket.create_connection(("127.0.0.1", server.port)) as here,
        socket.create_connection(("127.0.0.1", server.port)) as there,
    ):
        there.sendall(b"SUBSCRIBE news\r\n")
        assert there.recv(100).startswith(b"*3")
        there.setblocking(False)
        for _ in range(500):
            here.sendall(b"PING\r\n" + asked + b"\r\n")
            assert here.recv(100).startswith(b"+PONG")
            assert there.recv(100).endswith(b"x\r\n")


async def test_an_answer_behind_a_ping_is_its_own(server: valkey.Server) -> None:
    async with to(server.url) as here:
        await here.command("PING")
        found = await asyncio.gather(
            *(here.connections.request("ECHO", str(n), after_ping=bool(n % 3)) for n in range(100))
        )
        assert found == [str(number).encode() for number in range(100)]


async def test_what_cannot_be_said_takes_no_answer(server: valkey.Server) -> None:
    async with to(server.url) as here:
        with pytest.raises(TypeError):
            await here.command("ECHO", object())
        assert await here.command("ECHO", "next") == b"next"


async def test_a_loop_that_was_held_up_reads_before_it_judges() -> None:
    here, there = socket.socketpair()
    with there:
        _, line = await asyncio.get_running_loop().create_connection(lambda: RedisConnection(0.05), sock=here)
        answer = line.request("PING")
        time.sleep(0.1)  # noqa: ASYNC251 - the very thing
        there.sendall(b"+PONG\r\n")
        assert await answer == b"PONG"
        assert isinstance(await line.request("PING"), TimeoutError)
        await line.closed


async def test_who_closes_waits_a_moment_for_answers(server: valkey.Server) -> None:
    async with to(server.url) as here:
        await here.command("PING")
        asked = [asyncio.create_task(here.command("ECHO", str(number))) for number in range(3)]
        await until(lambda: here.connections.shared.has_pending)
    assert await asyncio.gather(*asked) == [b"0", b"1", b"2"]
    with pytest.raises(StoreUnavailable, match="not open"):
        await here.command("PING")
    await until(lambda: valkey.connections(server.url) == [])


async def test_many_who_come_at_once_come_by_one_connection(server: valkey.Server) -> None:
    """Also when the first of them, who has begun to connect, gives up."""
    async with to(server.url) as here:
        first, *rest = (asyncio.create_task(here.command("ECHO", str(number))) for number in range(40))
        await asyncio.sleep(0)
        first.cancel()
        assert await asyncio.gather(*rest) == [str(number).encode() for number in range(1, 40)]
        assert len(valkey.connections(server.url)) == 1
        assert server.text("CLIENT", "LIST").count("name=onthedot") == 1


async def test_an_answer_that_is_cut_in_the_middle_is_asked_for_again() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"two\r\n")
        writer.write(b"$3\r\none\r\n$3\r\nt")
        await writer.drain()

    async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"two\r\n")
        writer.write(b"$3\r\ntwo\r\n")
        await reader.read()

    async with somebody(half, whole) as url, to(url) as here:
        assert await asyncio.gather(here.command("ECHO", "one"), here.command("ECHO", "two")) == [b"one", b"two"]


async def test_all_who_wait_are_told_what_may_pass(server: valkey.Server) -> None:
    host, port = parse_url(server.url).hosts[0]
    _, line = await asyncio.get_running_loop().create_connection(lambda: RedisConnection(60), host, port)
    waiting = [line.request("BLPOP", "nothing", 0) for _ in range(3)]
    await until(lambda: "cmd=blpop" in server.text("CLIENT", "LIST"))
    server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    told = await asyncio.gather(*waiting, line.request("PING"))
    assert [may_pass(each) for each in told] == [True] * 4
    assert isinstance(await line.request("PING"), ConnectionError), "and who comes later, too"
    await line.closed


async def test_an_answer_that_does_not_come_puts_all_in_doubt(
    server: valkey.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection of hints as well, which nobody would miss; a call after that goes by a new one."""
    monkeypatch.setattr(client, "PATIENCE", 1.0)
    async with to(server.url) as here:
        heard = await here.listen("x", "onthedot:{x}:hints")
        await here.command("PING")
        with stopped(server):
            with pytest.raises(StoreUnavailable, match=r"no answer within 1 s"):
                await here.command("PING")
            with pytest.raises(ConnectionError, match="another connection went silent"):
                await heard.message()
        monkeypatch.setattr(client, "PATIENCE", SOON)
        assert await here.command("PING") == b"PONG"


async def test_who_does_not_read_is_not_written_to(server: valkey.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers wait until there is room: what is asked does not pile up here."""
    monkeypatch.setattr(client, "PATIENCE", SOON)
    big, number = "x" * 200_000, 100
    async with to(server.url) as here:
        await here.command("PING")
        line = here.connections.shared
        with stopped(server):
            asked = [asyncio.create_task(here.command("ECHO", f"{each}{big}")) for each in range(number)]
            await until(lambda: not line.ready)
            for _ in range(10):
                await asyncio.sleep(0)
            assert line.pending_count < number
            assert line.unsent_bytes < 3 * len(big)
        answers = await asyncio.gather(*asked)
        assert [answer.removesuffix(big.encode()) for answer in answers] == [b"%d" % each for each in range(number)]
        assert here.connections.shared is line


@pytest.mark.parametrize(
    ("login", "says"),
    [
        ("", "NOAUTH .*user or password is wrong, or missing: redis://user:password@host"),
        (":wrong@", "WRONGPASS .*user or password is wrong"),
        ("default:wrong@", "WRONGPASS .*user or password is wrong"),
        ("nobody:secret@", "WRONGPASS .*user or password is wrong"),
    ],
)
async def test_who_is_not_let_in_is_told_why(server: valkey.Server, login: str, says: str) -> None:
    server.ask("CONFIG", "SET", "requirepass", "secret")
    with pytest.raises(StoreRefused, match=says):
        await RedisStore(server.url.replace("//", f"//{login}")).open()
    async with to(server.url.replace("//", "//:secret@") + "/3") as here:
        assert b"db=3" in await here.command("CLIENT", "INFO")
        await here.command("CONFIG", "SET", "requirepass", "")
    with pytest.raises(StoreRefused, match=r"without any password.*user or password is wrong"):
        await RedisStore(server.url.replace("//", "//:secret@")).open()


async def test_one_too_many(server: valkey.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE", 1.0)
    async with to(server.url) as here:
        await here.command("CONFIG", "SET", "maxclients", "1")
        with pytest.raises(StoreBusy, match="raise maxclients"):
            await RedisStore(server.url).open()
        await here.command("CONFIG", "SET", "maxclients", "100")


async def test_a_master_that_became_a_replica_is_left(server: valkey.Server) -> None:
    """And asked for anew: it may be another by then, or a master again."""
    async with to(server.url) as here:
        await here.command("SET", "onthedot:x", "1")
        before = here.connections.shared
        server.ask("REPLICAOF", "127.0.0.1", "1")
        writing = asyncio.create_task(here.command("SET", "onthedot:x", "2"))
        await until(lambda: before.close_reason is not None)
        server.ask("REPLICAOF", "NO", "ONE")
        assert await writing == b"OK"


async def test_a_silent_subscription_is_asked_whether_it_lives(
    server: valkey.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "QUIET_TIME", 0.02)
    monkeypatch.setattr(subscription, "PING_TIMEOUT", 1.0)
    async with to(server.url) as here:
        heard = await here.listen("x", "onthedot:{x}:hints", "onthedot:{x}:to:me")
        before = pings(server)
        await until(lambda: pings(server) >= before + 2)
        server.ask("PUBLISH", "onthedot:{x}:to:me", "news")
        assert await heard.message() == (b"onthedot:{x}:to:me", b"news")
        with stopped(server), pytest.raises(TimeoutError, match="hints do not come any more"):
            await heard.message()


def pings(server: valkey.Server) -> int:
    lines = server.text("INFO", "commandstats").splitlines()
    said = next(line for line in lines if line.startswith("cmdstat_ping:"))  # of its start, at least
    return int(said.partition("calls=")[2].partition(",")[0])


async def test_a_subscription_that_is_forbidden_is_told_at_once(server: valkey.Server) -> None:
    server.ask("ACL", "SETUSER", "deaf", "on", ">secret", "~onthedot:*", "resetchannels", "+@all")
    async with to(server.url.replace("//", "//deaf:secret@")) as here:
        with pytest.raises(StoreRefused, match="NOPERM"):
            await here.listen("x", "onthedot:{x}:hints", "onthedot:{x}:to:me")


async def test_what_is_no_redis_is_told_at_once() -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with somebody(other) as url:
        with pytest.raises(StoreUnavailable, match=r"rotocol error.*is the address right"):
            await RedisStore(url).open()
