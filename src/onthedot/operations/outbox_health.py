"""Problems of an outbox, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from onthedot.operations.health import Check
from onthedot.operations.humanize import from_now, plural, suffix
from onthedot.operations.outbox import OutboxStatus, TopicInfo
from onthedot.operations.sources import Pause

MAX_UNSENT = timedelta(minutes=1)
MAX_PAUSE = timedelta(hours=1)


def check_outbox(status: OutboxStatus | None, now: datetime | None = None) -> list[Check]:
    """None: the store has no outbox, and nothing is checked. An outbox that nobody uses is no line."""
    if status is None or not (status.topics or status.relays or status.paused or status.handles):
        return []
    now = now or datetime.now(UTC)
    problems = [*_pauses(status, now), *_unsent(status, now), *_failed(status)]
    if problems:
        return problems
    return [Check(True, "outbox", f"{status.pending:,} unsent, {plural(len(status.relays), 'relay')}")]


def _pauses(status: OutboxStatus, now: datetime) -> Iterator[Check]:
    if status.paused is not None:
        yield _pause("all topics", status.paused, status.pending, "onthedot outbox resume", now)
    for each in status.topics:
        if each.paused is not None:
            yield _pause(each.topic, each.paused, each.pending, f"onthedot outbox resume {each.topic}", now)


def _pause(what: str, pause: Pause, pending: int, remedy: str, now: datetime) -> Check:
    ok = pause.since is not None and now - pause.since < MAX_PAUSE
    since = "since an unknown time" if pause.since is None else from_now(pause.since)
    reason = suffix(": ", pause.reason)
    return Check(ok, "outbox", f"{what} paused, {since}{reason}; {plural(pending, 'event')} unsent", remedy)


def _unsent(status: OutboxStatus, now: datetime) -> Iterator[Check]:
    """Of topics that are not paused."""
    if status.paused is not None:
        return
    late = [each for each in status.topics if each.paused is None and _is_late(each, now)]
    for each in late:
        assert each.oldest is not None
        text = f"{plural(each.pending, 'event')} of {each.topic} unsent, the oldest {from_now(each.oldest)}"
        if not status.relays:
            yield Check(
                False, "outbox", f"{text}, and no relay is alive",
                "start one: onthedot worker APP, or onthedot outbox relay",
            )  # fmt: skip
        elif each.blocked_keys:
            yield Check(False, "outbox", f"{text}, some behind failed ones", "onthedot outbox retry or discard ID")
        else:
            bus = ", ".join(sorted({relay.bus for relay in status.relays if relay.bus}))
            remedy = "read the log of the relay (onthedot.events): the topic or the bus does not take them"
            relays = plural(len(status.relays), "relay is", "relays are")
            yield Check(False, "outbox", f"{text}, although {relays} alive for {bus}", remedy)


def _is_late(topic: TopicInfo, now: datetime) -> bool:
    return topic.oldest is not None and now - topic.oldest > MAX_UNSENT


def _failed(status: OutboxStatus) -> Iterator[Check]:
    for each in status.topics:
        if each.failed:
            text = (
                f"{plural(each.failed, 'event')} of {each.topic} failed, {plural(each.blocked_keys, 'key')} blocked"
                f"{suffix(': ', each.error)}"
            )
            remedy = "onthedot outbox list --status failed; then onthedot outbox retry or discard ID"
            yield Check(False, "outbox", text, remedy)
