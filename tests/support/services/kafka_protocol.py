"""A few requests of Kafka's protocol without a client library, for sync code: metadata, topics, groups, ACLs."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from tests.support.waits import wait_until

METADATA = 3
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
CREATE_TOPICS = 19
DELETE_TOPICS = 20
CREATE_ACLS = 30
DELETE_ACLS = 31
_TOPIC = b"\2"
_LITERAL = b"\3"  # of an ACL: what it is for
_ANY = b"\1"
_ALL = b"\2"
_WRITE = b"\4"  # operations
_DENY = b"\2"
_ALLOW = b"\3"
TOPIC_EXISTS = 36
UNKNOWN_TOPIC = 3
_ANSWER = 10.0  # seconds


class Refused(Exception):
    """The broker answered with an error code."""


class Group(NamedTuple):
    name: str
    state: str  # Stable, Empty, …


def broker_count(address: str) -> int:
    with _ask(address, METADATA, 1, _int32(0)) as answer:
        return _read_int32(answer)


def topics(address: str) -> list[str]:
    """Without the internal ones."""
    with _ask(address, METADATA, 1, _int32(-1)) as answer:
        for _ in range(_read_int32(answer)):
            answer.read(4)
            _read_string(answer)
            answer.read(4)
            _read_string(answer)  # the rack
        answer.read(4)  # the controller
        found = []
        for _ in range(_read_int32(answer)):
            answer.read(2)
            name = _read_string(answer)
            is_internal = answer.read(1) != b"\0"
            for _ in range(_read_int32(answer)):
                answer.read(10)  # error, number, leader
                for _ in range(2):
                    answer.read(4 * _read_int32(answer))
            if not is_internal:
                found.append(name)
        return found


def create_topic(address: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """Returns when clients can see it: the controller answers before that."""
    options = config or {}
    body = _int32(1) + _string(name) + _int32(partitions) + _int16(1) + _int32(0) + _int32(len(options))
    body += b"".join(_string(key) + _string(value) for key, value in options.items())
    with _ask(address, CREATE_TOPICS, 2, body + _int32(5000) + b"\0") as answer:
        answer.read(8)  # throttle time, number of topics
        _read_string(answer)
        code = _read_int16(answer)
        if code:
            raise Refused(f"topic {name}: error {code}, {_read_string(answer)}")
    wait_until(lambda: name in topics(address))


def delete_topics(address: str, names: list[str]) -> None:
    body = _int32(len(names)) + b"".join(map(_string, names)) + _int32(5000)
    with _ask(address, DELETE_TOPICS, 1, body) as answer:
        answer.read(4)  # throttle time
        for _ in range(_read_int32(answer)):
            name = _read_string(answer)
            code = _read_int16(answer)
            if code not in (0, UNKNOWN_TOPIC):
                raise Refused(f"topic {name}: error {code}")
    wait_until(lambda: not set(names).intersection(topics(address)))


@contextmanager
def writes_denied(address: str, topic: str) -> Iterator[None]:
    """Everybody may look at the topic and read it, and nobody may write to it."""
    place = _TOPIC + _string(topic) + _LITERAL
    everybody = _string("User:*") + _string("*")
    body = _int32(2) + place + everybody + _ALL + _ALLOW + place + everybody + _WRITE + _DENY
    with _ask(address, CREATE_ACLS, 1, body) as answer:
        answer.read(4)  # throttle time
        for _ in range(_read_int32(answer)):
            code = _read_int16(answer)
            text = _read_string(answer)
            if code:
                raise Refused(f"ACL of {topic}: error {code}, {text}")
    try:
        yield
    finally:
        nothing = _int16(-1)
        with _ask(address, DELETE_ACLS, 1, _int32(1) + place + nothing + nothing + _ANY + _ANY) as answer:
            answer.read(8)  # throttle time, number of filters
            code = _read_int16(answer)
        if code:
            raise Refused(f"ACL of {topic}: error {code}")


def groups(address: str) -> list[Group]:
    with _ask(address, LIST_GROUPS, 0, b"") as answer:
        answer.read(2)
        names = []
        for _ in range(_read_int32(answer)):
            names.append(_read_string(answer))
            _read_string(answer)
    return [Group(name, _state(address, name)) for name in names]


def _state(address: str, group: str) -> str:
    with _ask(address, DESCRIBE_GROUPS, 0, _int32(1) + _string(group)) as answer:
        answer.read(6)  # number of groups, error
        _read_string(answer)
        return _read_string(answer)


def _ask(address: str, api: int, version: int, body: bytes) -> BinaryIO:
    """The answer, behind its correlation id."""
    host, _, port = address.rpartition(":")
    request = struct.pack(">hhi", api, version, 1) + _string("tests") + body
    with socket.create_connection((host, int(port)), timeout=_ANSWER) as connection:
        connection.sendall(_int32(len(request)) + request)
        answer = connection.makefile("rb")
        if len(answer.read(8)) < 8:
            answer.close()
            raise ConnectionError(f"{address} has closed the connection")
        return answer


def _int16(value: int) -> bytes:
    return struct.pack(">h", value)


def _int32(value: int) -> bytes:
    return struct.pack(">i", value)


def _string(text: str) -> bytes:
    return _int16(len(text.encode())) + text.encode()


def _read_int16(answer: BinaryIO) -> int:
    return int.from_bytes(answer.read(2), "big", signed=True)


def _read_int32(answer: BinaryIO) -> int:
    return int.from_bytes(answer.read(4), "big", signed=True)


def _read_string(answer: BinaryIO) -> str:
    return answer.read(max(0, _read_int16(answer))).decode()
