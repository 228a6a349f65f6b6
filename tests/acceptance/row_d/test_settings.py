"""The message queue: settings, and errors of wrong ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onthedot import DeclarationError
from onthedot.mq import MessageQueue, MQConfig, RedisMessageQueue
from onthedot.runtime.settings import URL_SCHEMES

pytestmark = pytest.mark.usefixtures("no_thread_left", "no_hidden_trouble")


def test_settings_are_frozen_and_have_the_promised_names() -> None:
    config = MQConfig()
    assert RedisMessageQueue is MessageQueue
    assert config.store == "redis://localhost:6379/0?max_connections=10"
    assert config.retry_delays == [60, 300, 1800]
    with pytest.raises(AttributeError):
        config.max_workers = 3  # type: ignore[misc]
    delays = [1.0]
    kept = MQConfig(retry_delays=delays)
    delays.append(2.0)
    assert kept.retry_delays == [1.0]
    assert MQConfig(url="sqlite:///x.db").store == "sqlite:///x.db"
    assert MessageQueue("memory://").config == MQConfig(url="memory://")
    assert MQConfig(url="redis://h/1?max_connections=3").store == "redis://h/1?max_connections=3"
    assert "s3cret" not in repr(MQConfig(redis_password="s3cret"))


def test_one_error_lists_every_wrong_setting() -> None:
    with pytest.raises(DeclarationError) as caught:
        MQConfig(url="http://x", max_worker=3, batch_size=1001, handler_timeout="60", retry_delays=[1, True])  # type: ignore[call-arg, arg-type]
    assert str(caught.value).splitlines() == [
        "MQConfig: 5 wrong",
        f"  url='http://x': must be the URL of a store: {', '.join(f'{scheme}://' for scheme in URL_SCHEMES)}",
        "  max_worker: there is no such field; did you mean max_workers?",
        "  batch_size=1001: must be a whole number from 1 to 1000",
        "  handler_timeout='60': must be a number of seconds from 0.001 to 31536000",
        "  retry_delays=[1, True]: must be a list, each a number of seconds from 0 to 31536000",
    ]


RANGES: dict[str, tuple[list[Any], list[Any]]] = {  # field: valid values, invalid values
    "url": (["memory://", None], ["", "x", b"memory://", 1]),
    "redis_host": (["h"], ["", None, 1]),
    "redis_port": ([1, 65_535], [0, 65_536, "6379", 1.0, True, None]),
    "redis_db": ([0, 15], [-1, True]),
    "redis_password": (["x", None], ["", 1]),
    "redis_ssl": ([True], [1, "yes", None]),
    "redis_max_connections": ([1, 10_000], [0, 10_001]),
    "queue_prefix": (["a.b:c-d_1"], ["", "a b", "a\n", "x" * 201, None]),
    "max_workers": ([1, 10_000], [0, 10_001, 5.0, True]),
    "batch_size": ([1, 1000], [0, 1001]),
    "delay_fallback_interval": ([0.1, 3600], [0, 3601, "10", True, float("nan")]),
    "message_ttl": ([0.001, 31_536_000], [0, 31_536_001, float("inf")]),
    "processing_timeout": ([60, 31_536_000], [0, -1, None]),
    "handler_timeout": ([0.001, 180], [0, timedelta(seconds=1)]),
    "handler_timeouts": ([{}, {"a": 1.5}], [None, [1], {"a": 0}, {1: 1}, {"a b": 1}]),
    "max_retries": ([0, 1000], [-1, 1001, 1.0]),
    "retry_delays": ([[0], (1, 2.5)], [None, 5, "abc", [-1], [True], [None]]),
    "monitor_interval": ([0.1, 86_400], [0, 86_401]),
}


@pytest.mark.parametrize("name", RANGES)
def test_each_setting_accepts_its_range_unchanged(name: str) -> None:
    assert sorted(RANGES) == sorted(MQConfig.__dataclass_fields__)
    for right in RANGES[name][0]:
        kept = getattr(MQConfig(**{name: right}), name)
        assert kept == (list(right) if isinstance(right, tuple) else right)
        assert type(kept) is type(right) or name == "retry_delays"
    for wrong in RANGES[name][1]:
        with pytest.raises(DeclarationError, match=rf"^MQConfig: 1 wrong\n  {name}=.*: must be "):
            MQConfig(**{name: wrong})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "memory://", "redis_host": "h"}, "url and redis_host: give one or the other"),
        ({"handler_timeout": 181}, "handler_timeout=181: must not be more than processing_timeout, which is 180"),
        ({"handler_timeouts": {"a": 200}}, r"handler_timeouts\['a'\]=200: must not be more"),
        ({"retry_delays": []}, "retry_delays: must have at least one delay, unless max_retries=0"),
    ],
)
def test_contradicting_settings_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        MQConfig(**given)
