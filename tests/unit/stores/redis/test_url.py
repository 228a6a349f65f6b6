"""The four kinds of URL, and refusals of others."""

from __future__ import annotations

import sys

import pytest

from onthedot.clock.system import SystemClock
from onthedot.errors import StoreRefused
from onthedot.stores import connect
from onthedot.stores.redis.url import parse_url


@pytest.mark.parametrize(
    ("url", "hosts", "db"),
    [
        ("redis://", [("localhost", 6379)], 0),
        ("redis://example", [("example", 6379)], 0),
        ("rediss://example:7000/3", [("example", 7000)], 3),
        ("redis://[::1]:7000/3", [("::1", 7000)], 3),
        ("redis+sentinel://a,b:27000/main/2", [("a", 26379), ("b", 27000)], 2),
        ("redis+cluster://a:1,b:2", [("a", 1), ("b", 2)], 0),
    ],
)
def test_hosts_and_database_of_a_url(url: str, hosts: list[tuple[str, int]], db: int) -> None:
    place = parse_url(url)
    assert (place.hosts, place.db) == (hosts, db)


def test_password_is_not_shown() -> None:
    place = parse_url("redis://me:s%40cret@example/1?lease=2.5")
    assert (place.username, place.password, place.lease) == ("me", "s@cret", 2500)
    assert "cret" not in place.shown


def test_service_of_a_sentinel_url() -> None:
    assert parse_url("redis+sentinel://a/main").service == "main"
    assert parse_url("redis+sentinel://a").service == "mymaster"


@pytest.mark.parametrize(
    "url",
    [
        "redis://a,b/0", "redis://a/x", "redis://a:port", "redis://a/0/1", "redis://a?size=3", "redis://a?lease=0",
        "redis+cluster://a/1", "redis://a?max_connections=0", "redis://a?max_connections=many",
    ],
)  # fmt: skip
def test_invalid_url_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(StoreRefused, match=r"looks like|unknown option"):
        parse_url(url)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("lease=abc", "lease=abc is not a number of seconds"),
        ("max_connections=many", "max_connections=many is not a whole number"),
        ("wait=1.5", "wait=1.5 is not a whole number"),
    ],
)
def test_option_that_is_no_number_is_named(option: str, message: str) -> None:
    with pytest.raises(StoreRefused, match=f"redis://a: {message}; such a URL looks like"):
        parse_url(f"redis://a?{option}")


@pytest.mark.parametrize(
    ("kind", "driver"),
    [("", "hiredis"), ("+sentinel", "redis.asyncio.sentinel"), ("+cluster", "redis.asyncio.cluster")],
)
async def test_missing_driver_names_the_extra(kind: str, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    store = connect(f"redis{kind}://localhost:1", SystemClock())
    with pytest.raises(StoreRefused, match=r"onthedot\[redis\]"):
        await store.open()
