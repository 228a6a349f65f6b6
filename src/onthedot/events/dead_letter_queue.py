"""Dead letters on the bus: finding them, and publishing their events again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from onthedot.events.bus import Bus, BusRecord
from onthedot.events.dead_letters import DeadLetter, read_dead_letter, replay_id, replayed
from onthedot.events.outbox_rows import raw_event
from onthedot.events.topic_names import dead_letter_topic, original_topic
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import NewEvent

_BATCH = 100  # events that are published at once
_EPOCH = 1_700_000_000  # seconds; numbers of forced replays are seconds since then: above all counted ones


@dataclass(frozen=True)
class FoundLetter:
    """A dead letter, and where it is."""

    record: BusRecord
    letter: DeadLetter
    topic: str  # that its event came from

    @property
    def id(self) -> str:
        """Of the dead letter: its place on the bus. A replay that fails again is another one, of the same event."""
        return f"{self.record.topic}:{self.record.partition}:{self.record.offset}"

    @property
    def at(self) -> int | None:
        """When it was written, in ms."""
        return self.record.message.timestamp


@dataclass(frozen=True)
class LetterFilter:
    """Which dead letters are meant; None and empty: any.

    topic: that the event came from. since: ms. error: a part of the class or the message of the error.
    """

    topic: str | None = None
    ids: Collection[str] = ()
    since: float | None = None
    error: str | None = None
    agent: str | None = None

    def fits(self, found: FoundLetter) -> bool:
        letter = found.letter
        if self.ids and letter.event_id not in self.ids:
            return False
        if self.agent is not None and letter.agent != self.agent:
            return False
        if self.since is not None and (found.at is None or found.at < self.since):
            return False
        text = f"{letter.error_type}: {letter.error_message}".lower()
        return self.error is None or self.error.lower() in text


@dataclass(frozen=True)
class NewestLetters:
    """The newest dead letters, and how many others there are."""

    letters: list[FoundLetter]
    others: int


@dataclass
class ReplayResult:
    """The result of a replay: ids of events that are published again, and of those that were replayed before."""

    replayed: list[str] = field(default_factory=list[str])
    unchanged: list[str] = field(default_factory=list[str])


class DeadLetterQueue:
    """The dead-letter topics of a bus. suffix: of their names. now: ms, by the clock of the process."""

    def __init__(self, bus: Bus, outbox: Outbox, suffix: str, now: Callable[[], float]) -> None:
        self._bus = bus
        self._outbox = outbox
        self._suffix = suffix
        self._now = now

    async def find(self, wanted: LetterFilter) -> AsyncIterator[FoundLetter]:
        """Dead letters in the order of their topics and partitions."""
        topics = f"*{self._suffix}"
        if wanted.topic is not None:
            topics = dead_letter_topic(wanted.topic, self._suffix)
        async for found in self._in(topics):
            if wanted.fits(found):
                yield found

    async def _in(self, topics: str) -> AsyncGenerator[FoundLetter, None]:
        records = self._bus.peek(topics)
        try:
            async for record in records:
                letter = read_dead_letter(record.message)
                topic = letter.topic or original_topic(record.topic, self._suffix) or record.topic
                yield FoundLetter(record, letter, topic)
        finally:
            if isinstance(records, AsyncGenerator):  # its reader has left early
                await records.aclose()

    async def newest(self, wanted: LetterFilter, limit: int) -> NewestLetters:
        """The newest first."""
        letters: list[FoundLetter] = []
        count = 0
        async for found in self.find(wanted):
            count += 1
            letters.append(found)
            if len(letters) >= 2 * limit:  # a long topic is not kept in memory
                letters = _newest(letters, limit)
        letters = _newest(letters, limit)
        return NewestLetters(letters, count - len(letters))

    async def named(self, ids: Collection[str]) -> list[FoundLetter]:
        """Those with these ids: see `FoundLetter.id`. A topic is read up to the last of them."""
        topics: dict[str, set[str]] = {}
        for each in ids:
            topic = each.rsplit(":", 2)[0]
            if topic.endswith(self._suffix):
                topics.setdefault(topic, set()).add(each)
        return [found for topic, wanted in sorted(topics.items()) for found in await self._named_in(topic, wanted)]

    async def _named_in(self, topic: str, wanted: set[str]) -> list[FoundLetter]:
        letters: list[FoundLetter] = []
        async with aclosing(self._in(topic)) as found:
            async for each in found:
                if each.id in wanted:
                    letters.append(each)
                    if len(letters) == len(wanted):
                        break
        return letters

    async def count(self, wanted: LetterFilter) -> int:
        """How many dead letters there are."""
        found = 0
        async for _ in self.find(wanted):
            found += 1
        return found

    async def replay(
        self, wanted: LetterFilter, *, again: bool = False, per_second: float | None = None
    ) -> ReplayResult:
        """Publishes the original events to their topics, through the outbox, for the agents that failed.

        again: also those that were replayed before. per_second: at most so many.
        """
        result = ReplayResult()
        batch: list[tuple[str, NewEvent]] = []
        size = _BATCH
        if per_second is not None:
            size = max(1, min(_BATCH, int(per_second / 10)))
        async for found in self.find(wanted):
            batch.append((found.letter.event_id, self._replayed(found, again=again)))
            if len(batch) >= size:
                await self._publish(batch, result)
                batch = []
                if per_second is not None:
                    await asyncio.sleep(size / per_second)
        await self._publish(batch, result)
        return result

    async def publish(self, letters: Sequence[FoundLetter], *, again: bool = False) -> ReplayResult:
        """Publishes the original events of these; see `replay`. It needs no bus: the relay sends them."""
        result = ReplayResult()
        for start in range(0, len(letters), _BATCH):
            page = letters[start : start + _BATCH]
            await self._publish([(each.letter.event_id, self._replayed(each, again=again)) for each in page], result)
        return result

    def _replayed(self, found: FoundLetter, *, again: bool) -> NewEvent:
        number = found.letter.replay + 1
        identity = replay_id(found.record)
        if again:
            number = int(self._now() / 1000) - _EPOCH
            identity = replay_id(found.record, str(number))
        return raw_event(identity, found.topic, replayed(found.record.message, number), int(self._now()))

    async def _publish(self, batch: list[tuple[str, NewEvent]], result: ReplayResult) -> None:
        if not batch:
            return
        answers = await self._outbox.publish([event for _, event in batch])
        for (event_id, _), fresh in zip(batch, answers, strict=True):
            if fresh:
                result.replayed.append(event_id)
            else:
                result.unchanged.append(event_id)


def _newest(letters: Iterable[FoundLetter], limit: int) -> list[FoundLetter]:
    return sorted(letters, key=lambda each: each.at or 0, reverse=True)[:limit]
