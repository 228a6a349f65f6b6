"""Problems of the topics and groups of an app on Kafka, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onthedot.clock.durations import DAY, HOUR
from onthedot.events.callbacks import GROUP as CALLBACK
from onthedot.events.kafka_state import KafkaGroupState, KafkaState, KafkaTopicState
from onthedot.events.topic_names import dead_letter_topic, original_topic
from onthedot.operations.health import Check
from onthedot.operations.humanize import plural

MAX_LAG = 10_000  # records
_CREATE = "kafka-topics.sh --create --topic {topic} --partitions {partitions}; or let Kafka(create_topics=True) do it"


def dead_letter_topics(app: str, suffix: str, group: str, topic: str) -> tuple[str, ...]:
    """Of a topic that a group reads. The callback service has no dead letters."""
    if agent_of_group(app, group) is None:
        return ()
    return (dead_letter_topic(topic, suffix),)


def agent_of_group(app: str, group: str) -> str | None:
    """None: the group of the callback service.

    >>> agent_of_group("shop", "shop.mailer"), agent_of_group("shop", "shop.callback")
    ('mailer', None)
    """
    agent = group.removeprefix(f"{app}.")
    return None if agent == CALLBACK else agent


def check_kafka(state: KafkaState, app: str, suffix: str, keep: Mapping[str, int]) -> list[Check]:
    """keep: agent → ms for which its newest ended event is kept, and with it the id by which copies are known."""
    problems = [problem for topic in state.topics for problem in _topic(topic, state, suffix)]
    found = problems or [_topics_are_right(state)]
    found += _groups(state, app)
    return [*found, *_keep(state, app, keep)]


def _topics_are_right(state: KafkaState) -> Check:
    partitions = sum(each.partitions for each in state.topics)
    return Check(
        True, "topics",
        f"{plural(len(state.topics), 'topic')} with {plural(partitions, 'partition')} on "
        f"{plural(state.brokers, 'broker')}",
    )  # fmt: skip


# -- topics


def _topic(topic: KafkaTopicState, state: KafkaState, suffix: str) -> Iterator[Check]:
    if not topic.partitions:
        yield _missing(topic, state, suffix)
        return
    if topic.without_leader:
        text = f"{topic.name}: {plural(topic.without_leader, 'partition')} of {topic.partitions} without a leader"
        yield Check(
            False, "topic", f"{text}; its events wait in the outbox", "start the brokers that have its replicas"
        )
    least = topic.min_in_sync
    if least is None:
        return
    if topic.in_sync < least:
        text = f"{topic.name}: {topic.in_sync} in-sync replicas, and min.insync.replicas is {least}"
        yield Check(False, "topic", f"{text}: Kafka refuses its events", "start the brokers that have its replicas")
    elif topic.replicas > 1 and least == 1:
        text = f"{topic.name}: min.insync.replicas is 1 of {topic.replicas}"
        remedy = _alter(topic, topic.replicas - 1 if topic.replicas > 2 else 2)
        yield Check(False, "topic", f"{text}: an event that one broker has counts as sent, and is lost with it", remedy)
    elif topic.replicas > 1 and least == topic.replicas:
        text = f"{topic.name}: min.insync.replicas is {least}, the number of its replicas"
        remedy = f"add a replica, or {_alter(topic, least - 1)}"
        yield Check(False, "topic", f"{text}: without one broker nothing can be sent", remedy)
    elif topic.replicas == 1 < state.brokers:
        text = f"{topic.name}: one replica on {state.brokers} brokers: its events are lost with that broker"
        yield Check(False, "topic", text, "add replicas: kafka-reassign-partitions.sh")


def _missing(topic: KafkaTopicState, state: KafkaState, suffix: str) -> Check:
    original = original_topic(topic.name, suffix)
    partitions = next((each.partitions for each in state.topics if each.name == original), 0) or 8
    text = f"{topic.name} does not exist"
    remedy = _CREATE.format(topic=topic.name, partitions=partitions)
    if topic.error != "UnknownTopicOrPartitionError":
        text = f"{topic.name} cannot be seen: {topic.error}"
        remedy = "allow this user to describe, read and write it"
    effect = "its events wait in the outbox"
    if original is not None:
        effect = f"dead letters of {original} wait in the outbox"
    return Check(False, "topic", f"{text}; {effect}", remedy)


def _alter(topic: KafkaTopicState, least: int) -> str:
    return (
        f"kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} "
        f"--add-config min.insync.replicas={least}"
    )


# -- groups


def _groups(state: KafkaState, app: str) -> Iterator[Check]:
    for group in state.groups:
        lag = sum(group.lag.values())
        text = f"{group.name} is {plural(lag, 'record')} behind in {', '.join(group.lag)}"
        if lag and not group.members:
            yield Check(False, "group", f"{text}, and nobody reads them", _reader(app, group))
        elif lag > MAX_LAG:
            remedy = "add capacity: more workers, --processes or -c; `onthedot top` shows how fast it goes"
            yield Check(False, "group", f"{text}, with {plural(group.members, 'member')}", remedy)
        else:
            members = plural(group.members, "member")
            yield Check(True, "group", f"{group.name}: {members}, {plural(lag, 'record')} behind")


def _reader(app: str, group: KafkaGroupState) -> str:
    agent = agent_of_group(app, group.name)
    what = "the callback service" if agent is None else f"the agent {agent}"
    delete = f"kafka-consumer-groups.sh --delete --group {group.name}"
    return f"start a worker whose app has {what}; if none has it any more: {delete}"


# -- the ids by which copies are known


def _keep(state: KafkaState, app: str, keep: Mapping[str, int]) -> Iterator[Check]:
    """A copy, or a group that is read again from its beginning, runs nothing while the tasks of the first are kept."""
    retention = {each.name: each.retention_ms for each in state.topics if each.retention_ms is not None}
    for group in state.groups:
        agent = agent_of_group(app, group.name)
        kept = keep.get(agent or "")
        times = {topic: retention[topic] for topic in group.lag if topic in retention}
        if kept is None or not times:
            continue
        longest = max(times, key=lambda topic: _length(times[topic]))
        if _length(times[longest]) > kept:
            text = f"{agent} keeps events for {_days(kept)} after their end, and {longest} for {_days(times[longest])}"
            remedy = f"set keep= of the agent above the retention of the topic, or retention.ms of {longest} below keep"
            yield Check(False, "copies", f"{text}: a copy that comes between runs again", remedy)
        else:
            yield Check(
                True, "copies", f"{agent} knows them for {_days(kept)}, {longest} has them for {_days(times[longest])}"
            )


def _length(retention_ms: int) -> float:
    return float("inf") if retention_ms < 0 else retention_ms


def _days(ms: int) -> str:
    """
    >>> _days(8 * 86_400_000), _days(5_400_000), _days(-1)
    ('8 days', '1.5 h', 'ever')
    """
    if ms < 0:
        return "ever"
    if ms % DAY == 0:
        return plural(ms // DAY, "day")
    return f"{ms / HOUR:g} h"
