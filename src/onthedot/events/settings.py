"""Settings of events and of Kafka: checked together, never converted, never changed."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from onthedot.clock.durations import to_duration_ms
from onthedot.errors import BadEvent, DeclarationError
from onthedot.events.event import Event
from onthedot.events.event_checks import check_fields
from onthedot.events.event_types import PASCAL_CASE, VERBS, TypePattern, check_action, check_type
from onthedot.events.kafka_url import parse_kafka_url
from onthedot.events.routes import Routes
from onthedot.events.topic_names import topic_problem
from onthedot.model.settings_checks import YEAR, Given, check_settings, shown_setting

STORE_BUS = "store"
_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
_Text: TypeAlias = Annotated[str, Meta(min_length=1, description="a text that is not empty")]
_Flag: TypeAlias = Annotated[bool, Meta(description="True or False")]
_Servers: TypeAlias = Annotated[
    str, Meta(pattern=rf"^{_HOST}(?:,{_HOST})*\Z", description='hosts with ports, as in "h1:9092,h2:9092"')
]
_Context: TypeAlias = Annotated[ssl.SSLContext, Meta(description="an ssl.SSLContext")]
_Http: TypeAlias = Annotated[
    str, Meta(pattern="^https?://.", description='the URL of an API, as in "http://127.0.0.1:4200/api"')
]
_Sql: TypeAlias = Annotated[
    str,
    Meta(
        pattern="^(postgresql|postgres|sqlite)://",
        description="the URL of a SQL database: postgresql:// or sqlite://",
    ),
]
_Uri: TypeAlias = Annotated[
    str, Meta(pattern=r"^[!-~]{1,200}\Z", description="a URI or a path of it, of 1 to 200 characters without spaces")
]
_Suffix: TypeAlias = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9._-]{1,50}\Z", description="1 to 50 of A-Z a-z 0-9 . _ -")
]
_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=YEAR)]
_Time: TypeAlias = Annotated[timedelta, Meta(description="a timedelta")]


@dataclass(frozen=True)
class Kafka:
    """Kafka as the bus; times in seconds. One error names all wrong fields.

    All in-sync replicas acknowledge every event (``acks="all"``), and the producer is idempotent; neither can be
    switched off. Needs ``pip install 'onthedot[kafka]'``.

    >>> Kafka("h1:9092,h2:9092", client="shop", partitions=0)
    Traceback (most recent call last):
    onthedot.errors.DeclarationError: Kafka: 2 wrong
      client: there is no such field; did you mean client_id?
      partitions=0: must be a whole number from 1 to 10000
    """

    servers: _Servers
    """Hosts with ports, separated by commas: any brokers of the cluster."""
    _: KW_ONLY
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Whether connections are encrypted (SSL) and log in (SASL)."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """How to log in; PLAIN by default."""
    sasl_username: _Text | None = None
    """Name to log in with."""
    sasl_password: _Text | None = field(default=None, repr=False)
    """Password to log in with."""
    ssl_context: _Context | None = field(default=None, repr=False)
    """For encrypted connections; by default one that verifies the servers with the certificates of the system."""
    client_id: _Text | None = None
    """Shown in the logs of the brokers; by default the name of the app."""
    compression: Literal["gzip", "snappy", "lz4", "zstd"] | None = None
    """Of the batches that are sent."""
    create_topics: _Flag = False
    """Whether missing topics are created, for development."""
    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 8
    """Of topics that are created."""
    replication: Annotated[int, Meta(ge=-1, le=100)] = -1
    """Replicas of topics that are created; -1: as the cluster decides."""
    request_timeout: Annotated[float, Meta(ge=0.1, le=600)] = 10
    """How long a broker may take to answer."""
    session_timeout: Annotated[float, Meta(ge=1, le=1800)] = 10
    """After this time without a heartbeat the partitions of a process are given to others."""

    def __new__(cls, *args: object, **given: Any) -> Kafka:
        # Not in __post_init__: __init__ refuses an unknown name before the other fields are checked.
        check_settings(cls, dict(zip(("servers",), args, strict=False)) | given, _kafka_contradictions)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.uses_sasl and self.sasl_mechanism is None:
            object.__setattr__(self, "sasl_mechanism", "PLAIN")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections log in."""
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_ssl(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @classmethod
    def from_url(cls, url: str) -> Kafka:
        """The settings of a URL: ``kafka://user:password@h1:9092,h2:9092?security_protocol=SASL_SSL``.

        Args:
            url: The URL; its options are the fields of this class, except `servers` and `ssl_context`.
        """
        servers, options = parse_kafka_url(url, cls, without=("servers", "ssl_context"))
        return cls(servers, **options)


def _kafka_contradictions(given: Given, right: Given) -> Iterator[str]:
    for port in re.findall(r":([0-9]+)(?=,|$)", str(right.get("servers", ""))):
        if not 1 <= int(port) <= 65_535:
            yield f"servers={right['servers']!r}: {port} is not a port; a port is a number from 1 to 65535"
    if right.get("replication") == 0:
        yield "replication=0: must be at least 1, or -1 for the default of the cluster"
    if "security_protocol" in given and "security_protocol" not in right:
        return
    protocol = right.get("security_protocol", "PLAINTEXT")
    login = [name for name in ("sasl_mechanism", "sasl_username", "sasl_password") if right.get(name) is not None]
    if login and not protocol.startswith("SASL_"):
        yield f"{', '.join(login)}: needs security_protocol SASL_SSL or SASL_PLAINTEXT, which is {protocol}"
    if protocol.startswith("SASL_"):
        missing = [name for name in ("sasl_username", "sasl_password") if given.get(name) is None]
        if missing:
            yield f"security_protocol={protocol!r}: needs {' and '.join(missing)}"
    if right.get("ssl_context") is not None and not protocol.endswith("SSL"):
        yield f"ssl_context: needs security_protocol SSL or SASL_SSL, which is {protocol}"


@dataclass(frozen=True, kw_only=True)
class Events:
    """Settings of the events of an app; times in seconds. One error names all wrong fields.

    >>> Events(topics={"Shop.Order": "orders"}, pol=2)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    onthedot.errors.DeclarationError: Events: 2 wrong
      pol: there is no such field; did you mean poll?
      topics['Shop.Order']: pattern of event types 'Shop.Order' has 2 segments, not 3 or 4; write ...
    """

    bus: Kafka | str | None = None
    """Where events are sent: `Kafka`, its URL, or ``"store"``, the store itself; by default ``$ONTHEDOT_BUS``, else the
    store.
    """
    topics: Mapping[_Text, _Text] = field(default_factory=dict[str, str])
    """Pattern of event types → topic; the first pattern that matches decides. ``*`` in the last segment stands for any
    characters except a dot. The default topic is ``{domain}.{aggregate}.events`` in lower case.
    """
    results: Sequence[_Text] = ()
    """Types of the events that resume handles wait for, or patterns of them."""
    outbox: _Sql | None = field(default=None, repr=False)
    """URL of another database for the outbox and the resume handles, if the tasks are in Redis."""
    source: _Uri | None = None
    """Attribute ``source`` of the CloudEvents; by default ``/`` and the name of the app."""
    verbs: Sequence[_Text] = VERBS
    """Ends of actions in the past tense that do not end in "ed"."""
    dlt_suffix: _Suffix = ".DLT"
    """Added to a topic for its dead letters."""
    keep_sent: _Time | _Seconds = timedelta(days=7)
    """How long sent events are kept, and resume handles after their end."""
    keep_arrivals: _Time | _Seconds = 3600
    """How long result events wait for a resume handle."""
    max_event: Annotated[int, Meta(ge=1000, le=100_000_000)] = 900_000
    """Bytes of the payload and the headers of an event."""
    poll: Annotated[float, Meta(ge=0.01, le=3600)] = 1.0
    """How often the outbox is read without a notification."""
    prefect: _Http | None = None
    """URL of the API of Prefect; by default ``$PREFECT_API_URL``."""

    def __new__(cls, *_: object, **given: Any) -> Events:
        check_settings(cls, given, _events_contradictions)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if isinstance(self.bus, str) and self.bus != STORE_BUS:
            object.__setattr__(self, "bus", Kafka.from_url(self.bus))
        object.__setattr__(self, "topics", dict(self.topics))  # the caller may change its own
        object.__setattr__(self, "results", tuple(self.results))
        object.__setattr__(self, "verbs", tuple(self.verbs))

    @cached_property
    def routes(self) -> Routes:
        """The topics of event types."""
        return Routes(self.topics)

    @property
    def keep_sent_ms(self) -> int:
        """The same in milliseconds."""
        return to_duration_ms(self.keep_sent, "keep_sent")

    @property
    def keep_arrivals_ms(self) -> int:
        """The same in milliseconds."""
        return to_duration_ms(self.keep_arrivals, "keep_arrivals")

    def kafka(self) -> Kafka | None:
        """The settings of Kafka, also those of ``$ONTHEDOT_BUS``; None: the store is the bus."""
        bus = self.bus
        if bus is None:
            bus = os.environ.get("ONTHEDOT_BUS") or STORE_BUS
        if isinstance(bus, Kafka):
            return bus
        if bus == STORE_BUS:
            return None
        return Kafka.from_url(bus)

    def source_of(self, app: str) -> str:
        """Attribute ``source`` of the CloudEvents of an app.

        Args:
            app: Name of the app.
        """
        return self.source or f"/{app}"

    def check_type(self, event_type: str) -> None:
        """BadEvent for a type that cannot be published: its form, or an action that is not in the past tense.

        Args:
            event_type: The type, as in ``"Shop.Order.Placed"``.
        """
        check_type(event_type)
        check_action(event_type, self.verbs)

    def check(self, event: Event[Any]) -> None:
        """BadEvent for an event that cannot be published.

        Args:
            event: The event, which may have been received from another program.
        """
        if not isinstance(event, Event):
            raise TypeError(f"{event!r} is not an Event, but of type {type(event).__name__}")
        self.check_type(event.type)
        check_fields(event)


def as_events(value: Events | Kafka | str | None) -> Events:
    """The settings that ``App(events=…)`` takes: settings, Kafka or its URL, or None for the defaults.

    >>> as_events("kafka://127.0.0.1:9092").kafka().servers
    '127.0.0.1:9092'
    """
    if isinstance(value, Events):
        return value
    if value is None or isinstance(value, Kafka | str):
        return Events(bus=value)
    raise DeclarationError(
        f"events={value!r} is of type {type(value).__name__}; pass Events(…), Kafka(…) or a URL as kafka://host:9092"
    )


def _events_contradictions(_given: Given, right: Given) -> Iterator[str]:
    yield from _bus_problems(right.get("bus"))
    verbs = right.get("verbs", VERBS)
    for verb in verbs:
        if not PASCAL_CASE.fullmatch(verb):
            yield f"verbs: {verb!r} is not PascalCase"
    suffix = right.get("dlt_suffix", ".DLT")
    for pattern, topic in right.get("topics", {}).items():
        if problem := _pattern_problem(pattern, verbs):
            yield f"topics[{pattern!r}]: {problem}"
        if problem := topic_problem(topic, suffix):
            yield f"topics[{pattern!r}]: topic {topic!r} {problem}"
    for result in right.get("results", ()):
        if problem := _pattern_problem(result, verbs):
            yield f"results: {problem}"
    for name in ("keep_sent", "keep_arrivals"):
        value = right.get(name)
        is_in_range = not isinstance(value, timedelta) or timedelta() <= value <= timedelta(seconds=YEAR)
        if isinstance(value, str) or not is_in_range:
            yield f"{shown_setting(name, value)}: must be a timedelta or a number of seconds from 0 to {YEAR}"


def _bus_problems(bus: object) -> Iterator[str]:
    if not isinstance(bus, str) or bus == STORE_BUS:
        return
    try:
        Kafka.from_url(bus)
    except DeclarationError as error:
        yield f"bus: {error}".replace("\n", "\n  ")


def _pattern_problem(text: str, verbs: Sequence[str]) -> str:
    try:
        pattern = TypePattern.of(text)
        if pattern.is_type:
            check_action(text, verbs)
    except BadEvent as error:
        return str(error)
    return ""
