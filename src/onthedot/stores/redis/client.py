"""The connections of one event loop, and how a script is called: by its digest, until it is answered."""

from __future__ import annotations

import asyncio
import random
import time
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from onthedot.errors import StoreRefused, StoreUnavailable
from onthedot.stores.redis.alert import alert_of
from onthedot.stores.redis.faults import explained, is_answer, is_unknown_script, may_pass
from onthedot.stores.redis.scripts import SCRIPTS, Script
from onthedot.stores.redis.url import Place, place_of

PATIENCE = 4.0  # seconds for an answer, tries and all: whoever adds waits for five
_CONNECT = 2.0
_LISTEN = 1.0  # seconds, after all tries: for why a server hung up
_CONFIRM = 2.0  # seconds for replicas to have it
_ADDING = [verb for verb in SCRIPTS if verb.startswith(("add", "adopt"))]  # nothing brings it back, all else is redone
_SEARCH = 10.0  # seconds for turning over all keys of a server
_COUNTS = "onthedot:{*}:count"  # every app has one
_OLDEST = (6, 2)


class Lines:
    """Connections of redis-py without its client: that would take half of the time of a call."""

    def __init__(self, pool: Any, most: int) -> None:
        self._pool = pool
        # The driver by itself packs word by word, in Python.
        self._pack: Callable[[tuple[Any, ...]], bytes] = import_module("hiredis").pack_command
        self._idle: list[Any] = []
        self._room = asyncio.Semaphore(most)
        self._closed = False

    async def ask(self, *words: Any) -> Any:
        (answer,) = await self.ask_all(words)
        return answer

    async def ask_all(self, *commands: tuple[Any, ...]) -> list[Any]:
        """In one round trip. A line whose answers were not all read is dropped: the next caller would get them."""
        async with self._room:
            line = self._idle.pop() if self._idle else self._pool.make_connection()
            try:
                if not line.is_connected:
                    await line.connect()  # by itself it would not ask the sentinels where
                await line.send_packed_command(b"".join(map(self._pack, commands)), check_health=False)
                answers = [await line.read_response() for _ in commands]
            except BaseException as error:
                if not is_answer(error) or self._closed or len(commands) > 1:
                    await line.disconnect(nowait=True)
                else:
                    self._idle.append(line)
                raise
            if self._closed:
                await line.disconnect(nowait=True)
            else:
                self._idle.append(line)
            return answers

    async def drop_idle(self, *, nowait: bool = True) -> None:
        """With TLS both sides say goodbye, which takes a moment; of a line in doubt it is not waited for."""
        lines, self._idle = self._idle, []
        await asyncio.gather(*(line.disconnect(nowait=nowait) for line in lines), return_exceptions=True)

    async def close(self) -> None:
        self._closed = True
        await self.drop_idle(nowait=False)


class Client:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._redis: Any = _made(place)
        self._cluster: bool = place.kind == "redis+cluster"
        self._pool: Any = None if self._cluster else self._redis.connection_pool
        self._lines = None if self._cluster else Lines(self._pool, place.connections)
        self._waits = _ADDING if place.wait else []
        self._pubsubs: weakref.WeakSet[Any] = weakref.WeakSet()
        self._ask: Callable[..., Awaitable[Any]] = self._lines.ask if self._lines else self._redis.execute_command

    async def check(self, prefix: str) -> None:
        """Refuses a server on which tasks could get lost."""
        where = {} if not self._cluster else {"target_nodes": await self._until_answered(self._node, prefix)}
        server = fields(await self.do("INFO", "server", **where))
        memory = fields(await self.do("INFO", "memory", **where))
        version = tuple(map(int, server.get("redis_version", "99.0").split(".")[:2]))
        if version < _OLDEST:
            raise StoreRefused(f"{self._place.shown} has version {version[0]}.{version[1]}; 6.2 or newer is needed")
        policy = memory.get("maxmemory_policy", "noeviction")
        if policy.startswith("allkeys"):
            raise StoreRefused(
                f"{self._place.shown} may drop tasks when its memory is full (maxmemory-policy {policy}); "
                "use noeviction, or one that begins with volatile-"
            )

    async def _node(self, prefix: str) -> Any:
        await self._redis.initialize()
        return self._redis.get_node_from_key(prefix)

    async def call(self, verb: str, prefix: str, *args: Any) -> Any:
        """One script, which is one transaction."""
        ask = partial(self._ask_and_wait, prefix) if verb in self._waits else self._ask
        return await self._until_answered(self._evaluate, ask, SCRIPTS[verb], prefix, args)

    async def do(self, *words: Any, **options: Any) -> Any:
        """One command that only reads."""
        return await self._until_answered(partial(self._ask, *words, **options))

    async def _ask_and_wait(self, prefix: str, *words: Any) -> Any:
        """WAIT goes by what its own line has written last, and a repeated call may write nothing: a message is sent."""
        assert self._lines is not None, "a cluster has no wait"
        wanted, mark = self._place.wait, ("PUBLISH", f"{prefix}waited", "")
        answer, _, there = await self._lines.ask_all(words, mark, ("WAIT", wanted, round(_CONFIRM * 1000)))
        if there < wanted:
            raise StoreUnavailable(
                f"{self._place.shown}: stored, but {there} of {wanted} replicas had it after {_CONFIRM:g} s (wait= in "
                "the URL): it is lost if the master dies now; the same call again does no harm"
            )
        return answer

    async def _evaluate(self, ask: Callable[..., Any], script: Script, prefix: str, args: tuple[Any, ...]) -> Any:
        try:
            return await ask("EVALSHA", script.sha, 1, prefix, *args)
        except Exception as error:
            if not is_unknown_script(error):  # a new server, or somebody has flushed them
                raise
            return await ask("EVAL", script.text, 1, prefix, *args)

    async def _until_answered(self, once: Any, *args: Any) -> Any:
        until, pause = time.monotonic() + PATIENCE, 0.01
        while True:
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    return await once(*args)
            except Exception as error:
                if isinstance(error, TimeoutError):
                    await self._doubt()
                if may_pass(error) and time.monotonic() + pause < until:
                    await asyncio.sleep(pause * random.uniform(0.5, 1))
                    pause = min(pause * 2, 0.5)
                    continue
                raise explained(await self._meant(error), self._place.shown) from error

    async def _meant(self, error: Exception) -> Exception:
        """A connection that broke may have been a server that wants a certificate of ours."""
        if self._place.kind == "rediss" and "tls_cert" not in self._place.options and may_pass(error):
            return await alert_of(self._place, _LISTEN) or error
        return error

    async def _doubt(self) -> None:
        """A connection went silent: the others may be, too. Each would cost a call, and that of hints not be missed."""
        if self._lines is not None:
            await self._lines.drop_idle()
        for pubsub in list(self._pubsubs):
            if pubsub.connection is not None:
                await pubsub.connection.disconnect(nowait=True)

    async def listen(self, prefix: str, *channels: str) -> Any:
        """A subscription on a connection of its own."""
        redis = self._redis
        if self._cluster:  # what one node is told, all are
            node = await self._until_answered(self._node, prefix)
            redis = _plain(self._place, node.host, node.port)
        pubsub = redis.pubsub()
        try:
            async with asyncio.timeout(PATIENCE):
                await pubsub.subscribe(*channels)
                for _ in channels:
                    await pubsub.get_message(timeout=PATIENCE)
        except BaseException as error:
            await pubsub.aclose()
            if isinstance(error, Exception):
                raise explained(error, self._place.shown) from error
            raise
        self._pubsubs.add(pubsub)
        return pubsub

    async def apps(self) -> list[str]:
        """The names of those that have keys here. It turns over every key of the server, a thousand at a time."""
        try:
            async with asyncio.timeout(_SEARCH):
                keys = [key.decode() async for key in self._redis.scan_iter(match=_COUNTS, count=1000)]
        except TimeoutError:
            raise StoreRefused(
                f"{self._place.shown} has too many keys to find out whose tasks are in it; say the name of the app: -n"
            ) from None
        except Exception as error:
            if "NOPERM" in str(error) or "no permissions" in str(error):
                says = f"{self._place.shown}: this user may not see which apps there are: say which by -n"
                raise StoreRefused(says) from error
            raise explained(error, self._place.shown) from error
        return sorted(key.removeprefix("onthedot:{").removesuffix("}:count") for key in keys)

    async def close(self) -> None:
        if self._lines is not None:
            await self._lines.close()
        for each in (self._redis, *getattr(getattr(self._pool, "sentinel_manager", None), "sentinels", ())):
            await each.aclose()


def apps_in(url: str) -> list[str]:
    """For people, who need not say the name of the only one."""

    async def look() -> list[str]:
        client = Client(place_of(url))
        try:
            return await client.apps()
        finally:
            await client.close()

    return asyncio.run(look())


def fields(info: Any) -> dict[str, str]:
    """Of INFO, whichever way the driver gives them."""
    if isinstance(info, bytes):
        info = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    return {str(name): str(value) for name, value in info.items()}


def _settings(place: Place) -> dict[str, Any]:
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    settings: dict[str, Any] = {  # no socket_timeout: its wait_for makes a task a call, and may swallow a cancel
        "username": place.username, "password": place.password, "socket_connect_timeout": _CONNECT,
        "socket_timeout": None, "retry": Retry(NoBackoff(), 0), "client_name": "onthedot", "protocol": 2,
    }  # fmt: skip
    return settings | _tls(place)


def _tls(place: Place) -> dict[str, Any]:
    """Verified, by all versions of the driver: older ones do not look at the host's name by themselves."""
    if not place.tls:
        return {}
    files = {"ssl_ca_certs": "tls_ca", "ssl_certfile": "tls_cert", "ssl_keyfile": "tls_key"}
    settings = {ours: place.options[name] for ours, name in files.items() if name in place.options}
    for name, file in settings.items():
        if not Path(file).is_file():
            raise StoreRefused(f"{place.shown}: {files[name]} names {file}, which is no file")
    required = "required" if place.verified else "none"
    return {**settings, "ssl": True, "ssl_cert_reqs": required, "ssl_check_hostname": place.verified}


def _plain(place: Place, host: str, port: int) -> Any:
    from redis.asyncio import Redis

    return Redis(host=host, port=port, db=place.db, **_settings(place))


def _made(place: Place) -> Any:
    try:
        import_module("hiredis")
        from redis.asyncio.cluster import ClusterNode, RedisCluster
        from redis.asyncio.sentinel import Sentinel
    except ImportError:
        raise StoreRefused(
            f"{place.shown} needs the drivers redis and hiredis: pip install 'onthedot[redis]' brings them"
        ) from None
    if place.kind == "redis+cluster":
        nodes = [ClusterNode(host, port) for host, port in place.hosts]
        return RedisCluster(startup_nodes=nodes, max_connections=place.connections, **_settings(place))
    if place.kind == "redis+sentinel":
        login = {name.removeprefix("sentinel_"): place.options[name] for name in place.options if "sentinel" in name}
        settings = _settings(place)
        theirs = {"socket_timeout": _CONNECT, "retry": settings["retry"], **login, **_tls(place)}
        watchers: Any = cast("Any", Sentinel)(place.hosts, sentinel_kwargs=theirs, **settings)
        return watchers.master_for(place.service, db=place.db)
    return _plain(place, *place.hosts[0])


def closed(place: Place) -> StoreUnavailable:
    return StoreUnavailable(f"{place.shown} is not open on this event loop")
