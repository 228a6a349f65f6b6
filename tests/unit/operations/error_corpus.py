"""Realistic errors of seven causes, with all values that vary in real programs."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from onthedot.codec.task_failure import TaskFailure

NAMES = ("ann", "Bob Müller", "O'Brien", 'Ann "the hat" Lee', "acme", "globex-eu", "名前", "x", "a/b", "it's me")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Draw:
    """Parts of messages, generated from a seed."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def number(self, most: int = 10**9) -> int:
        return self.random.randrange(self.random.choice((10, 1000, most)))

    def uuid(self) -> str:
        uuid = UUID(int=self.random.getrandbits(128), version=4)
        return self.random.choice((str(uuid), uuid.hex, str(uuid).upper()))

    def hexes(self) -> str:
        return f"{self.random.getrandbits(48):08x}"

    def id(self) -> str:
        letters = self.random.choices(string.ascii_lowercase, k=3)
        return self.random.choice((f"ord_{self.hexes()}", f"{''.join(letters)}-{self.number()}", str(self.number())))

    def name(self) -> str:
        return self.random.choice(NAMES)

    def time(self) -> str:
        at = START + timedelta(seconds=self.random.random() * 3e7)
        return self.random.choice(
            (at.isoformat(), str(at), f"{at:%Y-%m-%dT%H:%M:%SZ}", f"{at:%a %b %d %H:%M:%S %Y}", f"{at:%H:%M:%S}")
        )

    def path(self) -> str:
        parts = [self.random.choice(("var", "lib", "tmp", "2026", self.hexes(), "übung")) for _ in range(self.few())]
        return f"/{'/'.join(parts)}/{self.random.choice(('a.csv', 'orders.json', self.hexes(), 'a b.txt'))}"

    def ip(self) -> str:
        octets = ".".join(str(self.random.randrange(256)) for _ in range(4))
        six = ":".join(f"{self.random.getrandbits(16):x}" for _ in range(8))
        return self.random.choice((octets, f"{octets}:{self.number(65000) + 10}", six, f"[{six}]:443", "::1"))

    def few(self) -> int:
        return self.random.randrange(1, 6)

    def url(self) -> str:
        return (
            f"https://{self.random.choice(('api', 'eu-1.api'))}.bank.example/v{self.few()}/{self.id()}?try={self.few()}"
        )

    def data(self, depth: int = 3) -> object:
        kind = self.random.randrange(7 if depth else 5)
        match kind:
            case 0:
                return self.number()
            case 1:
                return self.random.random() * self.number()
            case 2:
                return self.random.choice((True, False, None))
            case 3 | 4:
                return self.random.choice((self.name(), self.uuid(), self.time(), ""))
            case 5:
                return [self.data(depth - 1) for _ in range(self.few() - 1)]
            case _:
                return {self.random.choice(("id", "name", "tags")): self.data(depth - 1) for _ in range(self.few())}


def refused(draw: Draw) -> TaskFailure:
    host = draw.ip()
    object_at = f"<urllib3.connection.HTTPSConnection object at 0x{draw.hexes()}>"
    return TaskFailure(
        "requests.exceptions.ConnectionError",
        f"HTTPSConnectionPool(host='{host}', port={draw.number()}): Max retries exceeded with url: /v1/{draw.id()}"
        f"?id={draw.uuid()} (Caused by NewConnectionError('{object_at}: Failed to establish a new connection: "
        f"[Errno 111] Connection refused'))",
    )


def duplicate(draw: Draw) -> TaskFailure:
    values = [draw.number(), draw.name(), draw.time(), draw.random.choice((None, 2.5, True))]
    placeholders = ", ".join(["?"] * draw.few())
    return TaskFailure(
        "sqlalchemy.exc.IntegrityError",
        f"(sqlite3.IntegrityError) UNIQUE constraint failed: orders.id, orders.customer\n"
        f"[SQL: INSERT INTO orders (id, name) VALUES ({placeholders})]\n[parameters: {tuple(values[: draw.few()])!r}]\n"
        f"(Background on this error at: https://sqlalche.me/e/20/{draw.hexes()[:4]})",
    )


def deadlock(draw: Draw) -> TaskFailure:
    ids = ", ".join(str(draw.number()) for _ in range(draw.few()))
    return TaskFailure(
        "sqlalchemy.exc.IntegrityError",
        f"(sqlite3.IntegrityError) FOREIGN KEY constraint failed\n[SQL: UPDATE orders SET name = {draw.name()!r} "
        f"WHERE id IN ({ids}) AND at < '{draw.time()}']",
    )


def unreadable(draw: Draw) -> TaskFailure:
    data = {"order": draw.data(), "items": [draw.data() for _ in range(draw.few())]}
    text = json.dumps(data) if draw.few() > 1 else repr(data)
    cut = text if draw.few() > 1 else text[: 50 + draw.number(300)]
    return TaskFailure("ValueError", f"cannot read the answer of {draw.url()} at {draw.time()}: {cut}")


def too_little(draw: Draw) -> TaskFailure:
    items = draw.few()
    return TaskFailure(
        "ValueError",
        f"order {draw.id()} of {draw.name()!r} has {items} item{'s' * (items > 1)} for {draw.number()}.50 EUR,"
        f" less than {draw.number()} (user {draw.few()}@shop.example, {draw.few() * 10}% off)",
    )


def no_file(draw: Draw) -> TaskFailure:
    return TaskFailure("FileNotFoundError", f"[Errno 2] No such file or directory: {draw.path()!r}")


def slow(draw: Draw) -> TaskFailure:
    tries = draw.few()
    return TaskFailure(
        "TimeoutError",
        f"no answer from {draw.ip()} within {draw.random.random() * draw.number():.1f} s after {tries} "
        f"{'retry' if tries == 1 else 'retries'}, last at {draw.time()} (request {draw.uuid()})",
    )


CAUSES: tuple[Callable[[Draw], TaskFailure], ...] = (
    refused, duplicate, deadlock, unreadable, too_little, no_file, slow,
)  # fmt: skip


def errors(number: int, seed: int) -> list[tuple[str, TaskFailure]]:
    """Return the name of a cause, and an error of it."""
    draw = Draw(Random(seed))
    drawn = (draw.random.choice(CAUSES) for _ in range(number))
    return [(cause.__name__, cause(draw)) for cause in drawn]
