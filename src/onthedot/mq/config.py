"""The settings of a message queue: checked together, never converted, never changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

from msgspec import Meta

from onthedot.model.settings_checks import YEAR, Given, check_settings
from onthedot.model.task import NAME
from onthedot.runtime.settings import URL_SCHEMES

_Many: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]
_Time: TypeAlias = Annotated[float, Meta(ge=0.001, le=YEAR)]
_Wait: TypeAlias = Annotated[float, Meta(ge=0, le=YEAR)]
_Name: TypeAlias = Annotated[
    str, Meta(pattern=rf"^{NAME.pattern}\Z", description="a name: 1 to 200 of A-Z a-z 0-9 _ . : -")
]
_Text: TypeAlias = Annotated[str, Meta(min_length=1, description="a string that is not empty")]
_Url: TypeAlias = Annotated[
    str,
    Meta(
        pattern=f"^({'|'.join(map(re.escape, URL_SCHEMES))})://",
        description=f"the URL of a store: {', '.join(f'{scheme}://' for scheme in URL_SCHEMES)}",
    ),
]


@dataclass(frozen=True, kw_only=True)
class MQConfig:
    """Settings of a MessageQueue; times in seconds. One error names all wrong fields.

    >>> MQConfig(max_worker=5, batch_size=0)
    Traceback (most recent call last):
    onthedot.errors.DeclarationError: MQConfig: 2 wrong
      max_worker: there is no such field; did you mean max_workers?
      batch_size=0: must be a whole number from 1 to 1000
    """

    url: _Url | None = field(default=None, repr=False)
    """URL of any store, instead of the five `redis_…` fields that follow."""
    redis_host: _Text = "localhost"
    """Host name or address of the Redis server."""
    redis_port: Annotated[int, Meta(ge=1, le=65_535)] = 6379
    """Port of the Redis server."""
    redis_db: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Number of the Redis database."""
    redis_password: _Text | None = field(default=None, repr=False)
    """Password of the Redis server."""
    redis_ssl: Annotated[bool, Meta(description="True or False")] = False
    """Whether the connection is encrypted."""
    redis_max_connections: _Many = 10
    """How many connections this process opens at most."""
    queue_prefix: _Name = "mq"
    """Name of the app: queues with different prefixes do not see each other."""
    max_workers: _Many = 5
    """How many messages this process handles at once."""
    batch_size: Annotated[int, Meta(ge=1, le=1000)] = 100
    """How many messages one claim takes at most."""
    delay_fallback_interval: Annotated[float, Meta(ge=0.1, le=3600)] = 10
    """How often the store is read without a notification."""
    message_ttl: _Time = 86_400
    """Time from producing after which a message that has not started ends as cancelled."""
    processing_timeout: _Time = 180
    """No handler may take longer; messages of a dead worker are with other workers by then."""
    handler_timeout: _Time = 60
    """How long a handler may take."""
    handler_timeouts: Mapping[_Name, _Time] = field(default_factory=dict[str, float])
    """How long the handler of a topic may take, instead of `handler_timeout`."""
    max_retries: Annotated[int, Meta(ge=0, le=1000)] = 3
    """How often a failed message is handled again before it becomes a dead letter."""
    retry_delays: Sequence[_Wait] = field(default_factory=lambda: [60, 300, 1800])
    """Delays before the retries; the last one repeats."""
    monitor_interval: Annotated[float, Meta(ge=0.1, le=86_400)] = 30
    """How often the health of the queue is checked."""

    def __new__(cls, *_: object, **given: Any) -> MQConfig:
        # Not in __post_init__: __init__ refuses an unknown name before the other fields are checked.
        check_settings(cls, given, _contradictions)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "retry_delays", list(self.retry_delays))  # the caller may change its own
        object.__setattr__(self, "handler_timeouts", dict(self.handler_timeouts))

    @property
    def store(self) -> str:
        """The URL of the store.

        >>> MQConfig(redis_host="cache", redis_password="s3/cret", redis_ssl=True).store
        'rediss://:s3%2Fcret@cache:6379/0?max_connections=10'
        """
        url = self.url
        if url is None:
            scheme = "rediss" if self.redis_ssl else "redis"
            login = ""
            if self.redis_password is not None:
                login = f":{quote(self.redis_password, safe='')}@"
            url = f"{scheme}://{login}{self.redis_host}:{self.redis_port}/{self.redis_db}"
        if url.startswith("redis") and "max_connections=" not in url:
            separator = "&" if "?" in url else "?"
            url += f"{separator}max_connections={self.redis_max_connections}"
        return url


def _contradictions(given: Given, right: Given) -> Iterator[str]:
    apart = [name for name in right if name.startswith("redis_") and name != "redis_max_connections"]
    if right.get("url") is not None and apart:
        yield f"url and {', '.join(apart)}: give one or the other"
    if not right.get("retry_delays", True) and right.get("max_retries", 3) != 0:
        yield "retry_delays: must have at least one delay, unless max_retries=0"
    times = {"handler_timeout": right.get("handler_timeout", 60)}
    times |= {f"handler_timeouts[{topic!r}]": time for topic, time in right.get("handler_timeouts", {}).items()}
    most = right.get("processing_timeout", inf if "processing_timeout" in given else 180)
    for name in (name for name, time in times.items() if time > most):
        yield f"{name}={times[name]}: must not be more than processing_timeout, which is {most}"
