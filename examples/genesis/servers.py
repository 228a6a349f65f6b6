"""Real servers for the example, in a clone of the project: those that its tests start. They end with the program."""

from __future__ import annotations

import os
import shlex
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_POSTGRES_SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}  # durable, unlike in the tests


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--store", help="URL of the store; by default a SQLite file")
    parser.add_argument("--bus", help="URL of the bus, such as kafka://127.0.0.1:9092; by default the store is the bus")
    parser.add_argument("--kafka", action="store_true", help="start Kafka as the bus; $KAFKA (host:port) names one")
    parser.add_argument("--postgres", action="store_true", help="start Postgres as the store")
    parser.add_argument("--valkey", action="store_true", help="start Valkey for the quota of the model")
    parser.add_argument("--prefect", action="store_true", help="start a Prefect server for the flow of flow.py")
    parser.add_argument("--all", action="store_true", help="start all four")


@contextmanager
def servers(options: Namespace, default_store: str = "") -> Iterator[None]:
    """Starts what the options name, and sets the variables that the app reads. Each server is printed."""
    with ExitStack() as stack:
        if options.postgres or options.all:
            os.environ["ONTHEDOT_STORE"] = _print("Postgres", stack.enter_context(_postgres()))
        elif store := options.store or default_store:
            os.environ["ONTHEDOT_STORE"] = store
        if options.kafka or options.all:
            address = os.environ.get("KAFKA") or stack.enter_context(_kafka())
            os.environ["ONTHEDOT_BUS"] = _print("Kafka", f"kafka://{address}?create_topics=true")
        elif options.bus:
            os.environ["ONTHEDOT_BUS"] = options.bus
        if options.valkey or options.all:
            os.environ["GENESIS_QUOTA"] = _print("Valkey", stack.enter_context(_valkey()))
        if options.prefect or options.all:
            os.environ["PREFECT_API_URL"] = _print("Prefect", stack.enter_context(_prefect()))
        yield


def _print(name: str, url: str) -> str:
    print(f"{name:<9} {url}", flush=True)
    return url


@contextmanager
def _postgres() -> Iterator[str]:
    from tests.support.services.postgres_server import Server

    with tempfile.TemporaryDirectory(prefix="genesis-", ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder), dict(_POSTGRES_SETTINGS))
        server.make()
        server.start()
        try:
            yield server.url
        finally:
            server.stop()


@contextmanager
def _kafka() -> Iterator[str]:
    from tests.support.services.kafka_server import Broker

    broker = Broker()
    try:
        broker.start()
        yield broker.address
    finally:
        broker.close()


@contextmanager
def _valkey() -> Iterator[str]:
    from tests.support.services.valkey import Server

    server = Server()
    try:
        yield server.url
    finally:
        server.close()


@contextmanager
def _prefect() -> Iterator[str]:
    from tests.support.services.prefect_environment import environment
    from tests.support.services.prefect_server import PrefectServer

    with tempfile.TemporaryDirectory(prefix="genesis-", ignore_cleanup_errors=True) as folder:
        server = PrefectServer(environment(), Path(folder))
        server.open()
        print(f"A flow    {flow_command(server.environment.python, server.api)}", flush=True)
        try:
            yield server.api
        finally:
            server.stop()


def flow_command(python: Path, api: str) -> str:
    """The command that runs the flow, in the root of the clone. It publishes to the store of the example.

    python: of the environment of Prefect. api: URL of its server.
    """
    settings = {"PYTHONPATH": "src", "PREFECT_API_URL": api}
    if store := os.environ.get("ONTHEDOT_STORE"):
        settings["ONTHEDOT_STORE"] = store
    assignments = [f"{name}={shlex.quote(value)}" for name, value in settings.items()]
    return " ".join([*assignments, shlex.quote(str(python)), "-m examples.genesis.flow s-1 item 50"])
