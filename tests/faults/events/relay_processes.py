"""Real relay processes, and what they have sent: numbers per key."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from tests.support.process_guard import start_guarded
from tests.support.waits import wait_until

APP = "shop"


class Sent(NamedTuple):
    """An event as a reader of the bus sees it."""

    key: str
    number: int
    id: str


@dataclass
class RelayProcess:
    process: subprocess.Popen[bytes]
    log: Path

    def wait_ready(self) -> None:
        wait_until(lambda: b"relay ready" in self.log.read_bytes() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals, timeout: float = 10) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout)


class RelayProcesses:
    """``onthedot outbox relay``, several times; all of them are killed at the end."""

    def __init__(self, folder: Path, store: str, bus: str = "store") -> None:
        self._folder = folder
        self._arguments = ["outbox", "relay", "--store", store, "-n", APP, "--bus", bus]
        self._numbers = count()
        self.all: list[RelayProcess] = []

    def start(self) -> RelayProcess:
        """Returns when it relays. Several threads may start relays at once."""
        log = self._folder / f"relay{next(self._numbers)}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ONTHEDOT")}
        with log.open("wb") as output:
            process = start_guarded(
                [sys.executable, "-m", "onthedot", *self._arguments], stdout=output, stderr=output, env=environment
            )
        relay = RelayProcess(process, log)
        self.all.append(relay)
        relay.wait_ready()
        return relay

    def logs(self) -> str:
        return "\n".join(relay.log.read_text() for relay in self.all)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for relay in self.all:
            if relay.process.poll() is None:
                relay.end(signal.SIGKILL)
        if error is not None:
            print(self.logs())


async def read_topic(address: str, topic: str) -> list[Sent]:
    """The messages of a topic of Kafka; payloads are numbers."""
    bus = KafkaBus(Kafka(address))
    found = [record.message async for record in bus.peek(topic)]
    await bus.close()
    return [
        Sent((message.key or b"").decode(), int(message.value), dict(message.headers)["ce_id"].decode())
        for message in found
    ]


@dataclass
class RelayReport:
    """The figures of one run: numbers from 0 on were published per key."""

    run: str
    published: dict[str, int]
    lost: int = 0
    copies: int = 0
    keys_out_of_order: int = 0
    other_ids: int = 0  # copies whose id is not that of the first
    notes: list[str] = field(default_factory=list[str])

    def read(self, found: Iterable[Sent]) -> Self:
        firsts: dict[str, dict[int, str]] = {key: {} for key in self.published}
        for key, number, event_id in found:
            known = firsts[key]
            if number in known:
                self.copies += 1
                self.other_ids += known[number] != event_id
            else:
                known[number] = event_id
        for key, total in self.published.items():
            numbers = list(firsts[key])
            self.lost += len(set(range(total)) - set(numbers))
            self.keys_out_of_order += numbers != sorted(numbers)
        return self

    def __str__(self) -> str:
        events = sum(self.published.values())
        notes = "".join(f", {note}" for note in self.notes)
        return (
            f"{self.run}: {events} events of {len(self.published)} keys, {self.lost} lost, {self.copies} copies, "
            f"{self.keys_out_of_order} keys out of order{notes}"
        )

    def check(self) -> None:
        print(f"\n{self}")
        assert (self.lost, self.keys_out_of_order, self.other_ids) == (0, 0, 0), self
