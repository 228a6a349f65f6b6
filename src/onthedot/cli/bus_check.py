"""``onthedot doctor --bus``: whether the bus answers, and its dead letters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from onthedot.cli.dlt import with_letters
from onthedot.cli.options import GlobalOptions
from onthedot.clock.epoch import from_ms, to_ms
from onthedot.errors import OnTheDotError
from onthedot.events.dead_letter_queue import LetterFilter, NewestLetters
from onthedot.operations.health import Check
from onthedot.operations.humanize import from_now, plural
from onthedot.stores.masked_url import masked

_WEEK = timedelta(days=7)  # the time that Kafka keeps records by default


def check_bus(options: GlobalOptions, bus: str) -> list[Check]:
    """Dead letters of the last week are a problem: somebody has to decide on them."""
    wanted = LetterFilter(since=to_ms(datetime.now(UTC) - _WEEK))
    try:
        found = with_letters(options, bus, None, lambda letters: letters.newest(wanted, 1))
    except OnTheDotError as error:
        return [Check(False, "bus", str(error), "start it, or name the right one by --bus")]
    return [Check(True, "bus", f"{masked(bus)} answers"), _letters(found)]


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
