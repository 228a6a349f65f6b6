"""A schema of an older version is upgraded while processes of that version work, and keeps its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from onthedot.cli import main
from onthedot.stores.contract import (
    ClaimRequest,
    Completed,
    Lease,
    NewEvent,
    NewTask,
    Outcome,
    RelayRequest,
    SlotPool,
    TurnResult,
)
from onthedot.stores.postgres import PostgresStore, protocol, schema
from onthedot.stores.postgres.grants import rights_text
from tests.support.waits import until
from tests.unit.stores.postgres.shop import LEASE

OLD = Path(__file__).with_name("schema_3.sql")
ROLE = "upgraded"
COLUMNS = """SELECT table_name, column_name, data_type FROM information_schema.columns
WHERE table_schema = 'onthedot' ORDER BY table_name, ordinal_position"""
INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'onthedot' ORDER BY indexname"
FUNCTIONS = """SELECT oid::regprocedure::text, prosrc, proconfig FROM pg_proc
WHERE pronamespace = 'onthedot'::regnamespace"""


def ask(url: str, query: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


class OldStore(PostgresStore):
    """The store of version 3, as far as a worker uses it: its turns have no events."""

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        assert request is not None
        body = self._request(
            session=session, claim=protocol.encode_claim_request(request), number=len(outcomes), sessions=[session],
            order="any", in_parts=False,
        )  # fmt: skip
        settled = protocol.encode(protocol.encode_outcomes(outcomes, session)) if outcomes else None
        row = await self.connections.turn.row("SELECT * FROM onthedot.turn_v1($1, $2, $3)", body, settled, None)
        return TurnResult(row["verdicts"] or [], protocol.to_claim_result(row))


class OldWorker:
    """Adds tasks and runs them, as fast as it can."""

    def __init__(self, store: OldStore, name: str) -> None:
        self.store = store
        self.name = name
        self.added = 0
        self.done: list[str] = []
        self.is_stopping = False

    async def run(self) -> None:
        await self.store.heartbeat(self.name, b"", LEASE)
        outcomes: list[Outcome] = []
        number = 0
        while not self.is_stopping or outcomes:
            number += 1
            if not self.is_stopping:
                await self.store.add([NewTask(f"{self.name}-{number}", self.name, b"")])
                self.added += 1
            turn = await self.store.turn(self.name, outcomes, ClaimRequest(number, [SlotPool(9, {self.name: 9})]))
            assert turn.verdicts == ["ok"] * len(outcomes)
            self.done += [outcome.lease.uuid for outcome in outcomes]
            assert turn.claim is not None
            outcomes = [Completed(Lease(record.uuid, turn.claim.fence, self.name)) for record in turn.claim.tasks]


@pytest.fixture
def old(empty: str) -> str:
    """A database of version 3."""
    with psycopg.connect(empty) as connection:
        connection.execute(OLD.read_text("utf-8"))
    return empty


@pytest.fixture
def as_role(old: str) -> Iterator[str]:
    """The same database for a role with the rights of version 3."""
    ask(old, f"CREATE ROLE {ROLE} LOGIN")
    ask(old, rights_text(ROLE))
    yield old.replace("postgres@", f"{ROLE}@")
    ask(old, f"DROP OWNED BY {ROLE}")
    ask(old, f"DROP ROLE {ROLE}")


async def opened_as_old(url: str, monkeypatch: pytest.MonkeyPatch) -> OldStore:
    store = OldStore(url)
    with monkeypatch.context() as context:
        context.setattr(schema, "VERSION", 3)
        await store.open()
    return store


async def use(url: str) -> None:
    """An event is published and relayed."""
    store = PostgresStore(url)
    await store.open()
    await store.heartbeat("w", b"", LEASE)
    assert await store.publish([NewEvent("1", "t", "k", 3)]) == [True]
    assert [each.event.id for each in (await store.relay("w", [], {}, RelayRequest())).events] == ["1"]
    await store.close()


def test_upgraded_schema_is_that_of_a_new_database(old: str, postgres: Any) -> None:
    schema.install(old)
    with postgres.database() as fresh:
        schema.install(fresh)
        for query in (COLUMNS, INDEXES, "SELECT number FROM onthedot.version"):
            assert ask(old, query) == ask(fresh, query)
        upgraded, new = ({name: rest for name, *rest in ask(url, FUNCTIONS)} for url in (old, fresh))
    assert {name: upgraded[name] for name in new} == new, "every function is the one of this version"


def test_check_says_what_to_do(old: str) -> None:
    result = CliRunner().invoke(main, ["schema", "check", "--store", old])
    assert result.exit_code == 1
    assert f"schema version 3, this onthedot needs {schema.VERSION}: run `onthedot schema install`" in result.output


async def test_workers_of_the_old_version_continue_during_and_after_the_upgrade(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [await opened_as_old(old, monkeypatch) for _ in range(2)]
    workers = [OldWorker(store, f"w{number}") for number, store in enumerate(stores)]
    running = asyncio.gather(*(worker.run() for worker in workers))

    async def go_on(number: int) -> None:
        goals = [len(worker.done) + number for worker in workers]
        await until(
            lambda: running.done() or all(len(each.done) >= goal for each, goal in zip(workers, goals, strict=True))
        )

    await go_on(20)
    await asyncio.to_thread(schema.install, old)
    await go_on(20)
    await use(old)
    for worker in workers:
        worker.is_stopping = True
    await running
    for worker in workers:
        assert len(worker.done) == len(set(worker.done)) == worker.added
        await worker.store.close()


async def test_role_works_on_after_the_upgrade(old: str, as_role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rights that it had; the verbs of the new version are granted again by the owner."""
    ask(old, "INSERT INTO onthedot.app (name) VALUES ('onthedot')")
    store = await opened_as_old(f"{as_role}?auto_schema=0", monkeypatch)
    await asyncio.to_thread(schema.install, old)
    worker = OldWorker(store, "w1")
    running = asyncio.ensure_future(worker.run())
    await until(lambda: running.done() or len(worker.done) > 3)
    worker.is_stopping = True
    await running
    await store.close()
    await asyncio.to_thread(ask, old, rights_text(ROLE))
    await use(f"{as_role}?auto_schema=0")
