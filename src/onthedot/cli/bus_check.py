"""``onthedot doctor --bus``: whether the bus answers, its topics and groups, and its dead letters."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from onthedot.cli.dlt import with_letters
from onthedot.cli.kafka_check import check_kafka, dead_letter_topics
from onthedot.cli.options import GlobalOptions
from onthedot.cli.outbox import event_settings
from onthedot.cli.target import target, with_operations
from onthedot.clock.epoch import from_ms, to_ms
from onthedot.errors import OnTheDotError
from onthedot.events.bus import BusError
from onthedot.events.dead_letter_queue import LetterFilter, NewestLetters
from onthedot.events.settings import Kafka
from onthedot.model.agent_names import agent_of
from onthedot.operations import Operations
from onthedot.operations.health import Check
from onthedot.operations.humanize import from_now, plural
from onthedot.stores.masked_url import masked

_WEEK = timedelta(days=7)  # the time that Kafka keeps records by default


class _Used(NamedTuple):
    """Facts of the store about the bus: topics of the outbox, and for how long agents keep ended events (ms)."""

    topics: list[str]
    keep: dict[str, int]


def check_bus(options: GlobalOptions, bus: str) -> list[Check]:
    """Dead letters of the last week are a problem: somebody has to decide on them."""
    wanted = LetterFilter(since=to_ms(datetime.now(UTC) - _WEEK))
    settings = event_settings(options, bus=bus)
    kafka = settings.kafka()
    try:
        found = with_letters(options, settings, lambda letters, _: letters.newest(wanted, 1))
        inside = [] if kafka is None else _kafka(options, kafka, settings.dlt_suffix)
    except (OnTheDotError, BusError) as error:
        return [Check(False, "bus", str(error), "start it, or name the right one by --bus")]
    return [Check(True, "bus", f"{masked(bus)} answers"), *inside, _letters(found)]


def _kafka(options: GlobalOptions, settings: Kafka, suffix: str) -> list[Check]:
    from onthedot.events.kafka.inspection import inspect  # an extra

    _, app = target(options)
    used = with_operations(options, _used)
    beside = partial(dead_letter_topics, app, suffix)
    state = asyncio.run(inspect(settings, f"{app}.", used.topics, beside))
    return check_kafka(state, app, suffix, used.keep)


async def _used(operations: Operations) -> _Used:
    status = await operations.outbox.find_status()
    topics = [] if status is None else [each.topic for each in status.topics]
    keep: dict[str, int] = {}
    for source in await operations.sources():
        agent = agent_of(source.name)
        if agent is None:
            continue
        async for record in operations.tasks.records({"source": source.name, "state": "succeeded"}, 1):
            if record.history.ended is not None and record.history.keep_until is not None:
                keep[agent] = record.history.keep_until - record.history.ended
    return _Used(topics, keep)


def _letters(found: NewestLetters) -> Check:
    if not found.letters:
        return Check(True, "dead letters", "0 within a week")
    (newest,) = found.letters
    when = "" if newest.at is None else f" {from_now(from_ms(newest.at))}"
    letter = newest.letter
    text = (
        f"{plural(found.others + 1, 'event')} within a week, the newest{when} of {letter.agent or newest.topic}: "
        f"{letter.error_type}: {letter.error_message}"
    )
    remedy = "onthedot outbox dlt list; fixed? onthedot outbox dlt replay --id ID"
    return Check(False, "dead letters", text, remedy)
