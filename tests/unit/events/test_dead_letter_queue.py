"""Dead letters are found by their ids without reading on behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

from onthedot.clock.manual import ManualClock
from onthedot.events.bus import Bus, BusMessage, BusRecord
from onthedot.events.dead_letter_queue import DeadLetterQueue
from onthedot.stores.memory import MemoryStore

TOPIC = "orders.DLT"


class LongTopic:
    """A topic of 1,000 messages that knows how far it was read, and whether its reader is closed."""

    def __init__(self) -> None:
        self.read = 0
        self.is_closed = False

    async def peek(self, topic: str) -> AsyncIterator[BusRecord]:
        try:
            for self.read in range(1, 1001):
                yield BusRecord(topic, 0, self.read, BusMessage(None, b"{}"))
        finally:
            self.is_closed = True


async def test_topic_is_read_up_to_the_last_named_letter() -> None:
    topic = LongTopic()
    letters = DeadLetterQueue(cast("Bus", topic), MemoryStore(ManualClock()), ".DLT", lambda: 0)
    found = await letters.named([f"{TOPIC}:0:7", f"{TOPIC}:0:3", "orders:0:1"])
    assert [each.id for each in found] == [f"{TOPIC}:0:3", f"{TOPIC}:0:7"]
    assert (topic.read, topic.is_closed) == (7, True)
    assert await letters.named([f"{TOPIC}:1:7"]) == []
