"""Acknowledged tasks that a dying Redis loses, per persistence setting, and the cost of an add.

``kill -9`` loses data in the server, but not data that was passed to the kernel. A power cut loses that as well: strace
shows when the server has synced its file, and the file is truncated to its content at the begin of the last sync. The
kernel may have written more by then, so this is the worst case. (WAITAOF does not help: Valkey 9.1 answers it at once,
also with one sync per second: redis#13793.)
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onthedot.errors import StoreUnavailable
from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import NewTask
from onthedot.stores.redis import RedisStore
from tests.faults.proxy import Proxy, proxy
from tests.support.services import valkey
from tests.support.waits import until, wait_until

ADDERS = 8  # concurrent clients that add one by one
COSTS = 500  # measured adds, one by one
LINGER = 0.3  # seconds for replies in flight at the death
PACE = 0.01  # seconds between two marks
BODY = b'{"to":"somebody@example.org"}'


@dataclass
class Loss:
    """One death: the number of acknowledged tasks, of lost ones, and the time span of the lost ones."""

    acknowledged: int
    gone: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.gone:,} of {self.acknowledged:,} ({self.seconds:.2f} s)" if self.gone else "none"


@dataclass
class Setting:
    name: str
    options: tuple[str, ...] = ()
    replicas: int = 0
    wait: int = 0
    stuck: float = 0  # seconds without replication before the master dies
    cost: list[float] = field(default_factory=list)  # ms of an awaited add
    killed: list[Loss] = field(default_factory=list)
    cut: list[Loss] = field(default_factory=list)


def settings() -> list[Setting]:
    aof = ("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--appendfsync")
    fewest = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
    return [
        Setting("nothing is kept"),
        Setting("RDB at its most eager: `save 1 1`", ("--save", "1 1")),
        Setting("AOF, `appendfsync everysec`", (*aof, "everysec")),
        Setting("AOF, `appendfsync always`", (*aof, "always")),
        Setting("a replica", replicas=1),
        Setting("a replica, its link stuck for 1 s", replicas=1, stuck=1),
        Setting("the same for 8 s, `min-replicas-max-lag 2`", fewest, replicas=1, stuck=8),
        Setting("a replica, `?wait=1`", replicas=1, wait=1),
        Setting("the same, its link stuck for 1 s", replicas=1, wait=1, stuck=1),
    ]


class Adding:
    """Adds until it is stopped; records the acknowledged tasks with their times (begun, acknowledged)."""

    def __init__(self, url: str, adders: int = ADDERS) -> None:
        self.acknowledged: dict[str, tuple[float, float]] = {}
        self._adders = [asyncio.create_task(self._add(url)) for _ in range(adders)]

    async def _add(self, url: str) -> None:
        store = RedisStore(url)
        await store.open()
        try:
            while True:
                task = NewTask(new_uuid(), "mail", BODY)
                began = time.time()
                try:
                    await store.add([task])
                except StoreUnavailable:  # refused without a replica: not acknowledged
                    await asyncio.sleep(0.05)
                    continue
                self.acknowledged[task.uuid] = (began, time.time())
        finally:
            await store.close()

    async def stop(self) -> None:
        await asyncio.sleep(LINGER)
        for adder in self._adders:
            adder.cancel()
        ends = await asyncio.gather(*self._adders, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends

    async def missing(self, url: str) -> Loss:
        store = RedisStore(url)
        await store.open()
        uuids = list(self.acknowledged)
        gone = [uuid for uuid, record in zip(uuids, await store.get(uuids), strict=True) if record is None]
        await store.close()
        times = [self.acknowledged[uuid][1] for uuid in gone] or [0.0]
        return Loss(len(uuids), len(gone), max(times) - min(times))


class Marks:
    """Writes a mark every few ms; when it is acknowledged, it has been passed to the kernel."""

    def __init__(self, url: str) -> None:
        self.acknowledged: list[float] = []
        self._task = asyncio.create_task(self._go_on(url))

    async def _go_on(self, url: str) -> None:
        from redis.asyncio import Redis

        async with Redis.from_url(url) as client:
            while True:
                await client.set("mark", f"{len(self.acknowledged):09}")
                self.acknowledged.append(time.time())
                await asyncio.sleep(PACE)

    async def stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):  # its server is dead
            await self._task

    def before(self, moment: float) -> int:
        """The index of the last one; -1 if there is none."""
        return sum(at < moment for at in self.acknowledged) - 1


class Syncs:
    """Begin and end of every sync of the server, observed by strace."""

    def __init__(self, pid: int, folder: str) -> None:
        self._file = Path(folder, "syncs")
        command = ["strace", "-f", "-ttt", "-T", "-e", "trace=fdatasync,fsync", "-o", str(self._file), "-p", str(pid)]
        self._strace = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._strace.stderr is not None
        line = self._strace.stderr.readline()
        assert "attached" in line, line

    def spans(self) -> list[tuple[float, float]]:
        """Begin and end of the syncs of a dead server."""
        self._strace.communicate()
        found = []
        for line in self._file.read_text().splitlines():
            if found := _SYNC.match(line):
                at = float(found["at"])
                took = float(found["took"])
                began = at - took if found["resumed"] else at
                found.append((began, began + took))
        return found


_SYNC = re.compile(r"\d+ +(?P<at>[\d.]+) (?P<resumed><\.\.\. )?f(data)?sync.* = 0 <(?P<took>[\d.]+)>$")


async def costs(setting: Setting, url: str, scale: float) -> None:
    store = RedisStore(url)
    await store.open()
    for number in range(20 + int(COSTS * scale)):
        began = time.perf_counter()
        await store.add([NewTask(new_uuid(), "mail", BODY)])
        if number >= 20:
            setting.cost.append((time.perf_counter() - began) * 1000)
    await store.close()


async def die_alone(setting: Setting, seconds: float, scale: float) -> None:
    """Kills the server; with a file, computes the loss of a power cut at the same moment as well."""
    with valkey.server(*setting.options) as server:
        await costs(setting, server.url, scale)
        adding = Adding(server.url)
        await asyncio.sleep(seconds)
        await killed(server, adding)
        server.start()
        setting.killed.append(await adding.missing(server.url))
    if "everysec" in setting.options and shutil.which("strace"):
        setting.cut.append(await cut_off(setting, seconds))
    elif "always" in setting.options and shutil.which("strace"):
        setting.cut.append(await unsynced(setting, seconds))
    elif "--appendonly" not in setting.options:  # a snapshot is synced before it is renamed
        setting.cut.append(setting.killed[-1])


async def killed(server: valkey.Server, adding: Adding) -> float:
    """Kills a server and returns the time."""
    os.kill(server.pid, 9)
    died = time.time()
    await adding.stop()
    server.stop()
    return died


async def cut_off(setting: Setting, seconds: float) -> Loss:
    with valkey.server(*setting.options) as server, tempfile.TemporaryDirectory() as place:
        syncs = Syncs(server.pid, place)
        marks = Marks(server.url)
        adding = Adding(server.url)
        await asyncio.sleep(seconds)
        died = await killed(server, adding)
        await marks.stop()
        began = [began for began, ended in syncs.spans() if ended < died]
        cut_behind(Path(server.folder.name), marks.before(began[-1]) if began else -1)
        server.start()
        return await adding.missing(server.url)


def cut_behind(folder: Path, mark: int) -> None:
    """Truncates the file after the mark, as if the rest had not reached the disk."""
    (file,) = folder.glob("appendonlydir/*.incr.aof")
    command = f"SET\r\n$4\r\nmark\r\n$9\r\n{mark:09}\r\n".encode()
    written = file.read_bytes()
    assert mark < 0 or written.count(command) == 1, f"mark {mark} was acknowledged"
    os.truncate(file, 0 if mark < 0 else written.index(command) + len(command))


async def unsynced(setting: Setting, seconds: float) -> Loss:
    """With a single adder every sync belongs to one add. Counts adds without a sync between request and reply."""
    with valkey.server(*setting.options) as server, tempfile.TemporaryDirectory() as place:
        syncs = Syncs(server.pid, place)
        adding = Adding(server.url, 1)
        await asyncio.sleep(seconds)
        await killed(server, adding)
        spans = syncs.spans()
        times = list(adding.acknowledged.values())
        bare = sum(not any(sent < began and ended < replied for began, ended in spans) for sent, replied in times)
        return Loss(len(times), bare, 0)


async def fail_over(setting: Setting, seconds: float, scale: float) -> None:
    with pair(*setting.options) as (master, link, replica):
        url = f"{master.url}?wait={setting.wait}"
        await costs(setting, url, scale)
        adding = Adding(url)
        await asyncio.sleep(seconds)
        if setting.stuck:
            link.go_silent()
            await asyncio.sleep(setting.stuck)
        await killed(master, adding)
        assert replica.ask("REPLICAOF", "NO", "ONE") == b"+OK"
        await until(lambda: "role:master" in replica.text("INFO", "replication"))
        setting.killed.append(await adding.missing(replica.url))


@contextmanager
def pair(*options: str) -> Iterator[tuple[valkey.Server, Proxy, valkey.Server]]:
    with (
        valkey.server("--repl-diskless-sync-delay", "0", *options) as master,
        proxy(master.port) as link,
        valkey.server("--replicaof", "127.0.0.1", str(link.port)) as replica,
    ):
        wait_until(lambda: "state=online" in master.text("INFO", "replication"))
        yield master, link, replica


def run(rounds: int, scale: float, file: str | None) -> int:
    chance = random.Random(6)
    all_of_them = settings()
    for number in range(rounds):
        for setting in all_of_them:
            print(f"\rround {number + 1}/{rounds}: {setting.name:<44}", end="", file=sys.stderr, flush=True)
            seconds = scale * chance.uniform(3, 5)  # a random moment between two syncs
            how: Any = fail_over if setting.replicas else die_alone
            asyncio.run(how(setting, seconds, scale))
    print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
    print(table(all_of_them))
    if file:
        Path(file).write_text(json.dumps(all_of_them, indent=1, default=vars) + "\n")
    return 0


def table(all_of_them: Sequence[Setting]) -> str:
    lines = [
        "| what keeps it | lost by `kill -9` of the server | lost by a power cut, at worst | one `add`, p50 / p99 |",
        "|---|---|---|---|",
    ]
    for each in all_of_them:
        ordered = sorted(each.cost)
        took = f"{statistics.median(ordered):.2f} / {ordered[len(ordered) * 99 // 100]:.2f} ms"
        other = "the same" if each.replicas else "not measured: no strace"
        lines.append(f"| {each.name} | {worst(each.killed)} | {worst(each.cut) if each.cut else other} | {took} |")
    return "\n".join(lines)


def worst(losses: Sequence[Loss]) -> Loss:
    """The worst of the rounds."""
    return max(losses, key=lambda loss: (loss.gone, loss.acknowledged))
